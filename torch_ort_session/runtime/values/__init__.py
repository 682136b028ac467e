"""What users hand in becomes frame values; what they get is theirs."""

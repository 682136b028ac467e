"""A session, its plans and its entries put into words and pictures."""

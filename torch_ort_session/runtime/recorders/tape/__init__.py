"""The recorder of the CPU: a tape of ATen calls that compiled code replays."""

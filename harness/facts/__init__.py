"""What engines and trainers mean by a layer id: plain data, no torch."""

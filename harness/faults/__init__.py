"""The fault catalogue: wrong wires that can be put into a pair, and what each detector says of them."""

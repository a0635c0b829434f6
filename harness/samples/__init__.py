"""Training samples of EAGLE-3 drafts, in the formats that the trainers' data generation writes."""

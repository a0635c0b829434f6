"""Training samples of EAGLE-3 drafts: what the trainers' data generation writes."""

"""Training data, training and measuring of the models in models/."""

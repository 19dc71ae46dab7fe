"""The networks that the learning tasks train: small, plain, one class each.

Every class is built from (hyperparameters, input shape of one example, number of outputs).
"""

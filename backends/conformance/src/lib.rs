//! One suite that every backend runs: values, gradients, shapes and refusals.

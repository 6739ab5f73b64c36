//! Tensors, the kernels that a backend provides, and the gradient rules.

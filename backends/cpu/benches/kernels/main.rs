//! How fast the kernels are, and how near to what the machine can do: `cargo bench -p assay -p assay-cpu --bench kernels`.
//!
//! ```text
//! cargo bench -p assay -p assay-cpu --bench kernels -- linear     those whose names match
//! ASSAY_THREADS=1 cargo bench ...                                 on one thread instead of two
//! ```
//!
//! After divan's own table comes a second one: each kernel's median against the rate of arithmetic or of copying memory
//! that the machine had just before it. (`-p assay` keeps the features of the dependencies as the whole workspace has
//! them, so that nothing heavy is built again.)

mod measured;

mod elements;
mod products;
mod recurrences;

fn main() {
    divan::main();
    measured::print();
}

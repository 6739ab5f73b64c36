//! Tasks of Long Range Arena (Tay et al. 2021) in the layout of its release: ListOps, Text (the reviews of Maas et al. 2011), Retrieval
//! and Pathfinder. Its task Image is CIFAR-10 in grey: [`crate::images`].

mod listops;
mod pathfinder;
mod retrieval;
mod reviews;

pub use listops::{Expression, VOCABULARY, read_listops};
pub use pathfinder::read_pathfinder;
pub use retrieval::{DocumentPair, find_pairs, visit_pairs};
pub use reviews::{Review, Reviews, read_reviews};

//! The shape of the repository as tests: the layers, the sizes, the names, the words that must and must not be there.

mod documents;
mod layers;
mod names;
mod sources;

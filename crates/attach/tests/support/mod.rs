//! What the tests of this crate share.

pub(crate) mod input;
pub(crate) mod laws;
pub(crate) mod render;

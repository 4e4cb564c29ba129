//! One sentence through a tiny model, as a page that can be stepped.

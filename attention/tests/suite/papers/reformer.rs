//! LSH attention: Kitaev, Kaiser and Levskaya 2020.

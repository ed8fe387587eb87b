//! Laws that one backend shows.

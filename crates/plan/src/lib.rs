//! What a cache will cost, before anything runs: bytes, requests, times and prices.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fewshot_fuzz::packs(bytes));

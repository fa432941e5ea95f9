set default_transaction_isolation = 'read committed';
set plan_cache_mode = force_generic_plan;
set enable_seqscan = off;
set enable_bitmapscan = off;
set enable_hashjoin = off;
set enable_mergejoin = off;
set jit = off;

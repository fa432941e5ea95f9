-- Lets a script write although the server is out of memory.
--
-- A server without memory refuses the first command of a script that may need more. After a
-- deletion it refuses none, because the script would be left half done. Calls that keep or
-- end leases start with a deletion: they need little memory, and work in progress must not
-- be lost because memory is full. Adds are refused.
call('HDEL', meta, '')

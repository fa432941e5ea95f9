local call, format, sub, byte = redis.call, string.format, string.sub, string.byte

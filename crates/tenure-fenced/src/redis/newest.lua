-- Read the fence that a refused holder was overtaken by.
-- KEYS[1] fence
-- Returns the fence, or 0 when none is stored.
local remembered = KEYS[1]
-- Fences are below 2^53, so a Lua number holds them exactly.
return tonumber(redis.call('GET', remembered) or '0')

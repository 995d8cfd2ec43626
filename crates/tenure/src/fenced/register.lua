-- Register a fence before the data is read: from now on every earlier holder is refused, whether or not this one writes.
-- Upholds I4.
-- KEYS[1] fence     ARGV[1] fence
-- Returns 1 when the fence was registered, 0 when the reader was overtaken by a newer holder.
local remembered, fence = KEYS[1], ARGV[1]
local last = redis.call('GET', remembered)
-- Fences are below 2^53, so a Lua number holds them exactly.
if last and tonumber(last) > tonumber(fence) then
  return 0
end
redis.call('SET', remembered, fence)
return 1

-- Register a fence before the data is read: from now on every earlier holder is refused, whether or not this one writes.
-- Upholds I4.
-- KEYS[1] fence     ARGV[1] fence
-- Returns 1 when the fence was registered, 0 when the reader was overtaken by a newer holder.
local remembered, fence = KEYS[1], ARGV[1]
-- What is not a fence would shut out every later holder, and 0 is that of a lock without fences.
if not string.match(fence, '^%d+$') or tonumber(fence) > 9007199254740991 or tonumber(fence) == 0 then
  return redis.error_reply('ERR the fence must be a number from 1 to 9007199254740991')
end
local last = redis.call('GET', remembered)
if last and not string.match(last, '^%d+$') then
  return redis.error_reply('ERR the key of the fence holds something else')
end
-- Fences are below 2^53, so a Lua number holds them exactly.
if last and tonumber(last) > tonumber(fence) then
  return 0
end
redis.call('SET', remembered, fence)
return 1

-- Set a value if, and only if, the writer is not overtaken by a newer holder. Upholds I4.
-- KEYS[1] value     KEYS[2] fence     ARGV[1] fence     ARGV[2] value
-- Returns 1 when the value was set, 0 when the writer was overtaken.
local value, remembered = KEYS[1], KEYS[2]
local fence = ARGV[1]
-- What is not a fence would shut out every later holder, and 0 is that of a lock without fences.
if not string.match(fence, '^%d+$') or #fence > 16 or tonumber(fence) == 0 then
  return redis.error_reply('ERR the fence must be a number of at most 16 digits, and not 0')
end
local last = redis.call('GET', remembered)
-- Fences are below 2^53, so a Lua number holds them exactly.
if last and tonumber(last) > tonumber(fence) then
  return 0
end
redis.call('SET', remembered, fence)
redis.call('SET', value, ARGV[2])
return 1

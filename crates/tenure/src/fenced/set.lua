-- Set a value if, and only if, the writer is not overtaken by a newer holder. Upholds I4.
-- KEYS[1] value     KEYS[2] fence     ARGV[1] fence     ARGV[2] value
-- Returns 1 when the value was set, 0 when the writer was overtaken.
local value, remembered = KEYS[1], KEYS[2]
local fence = ARGV[1]
if value == remembered then
  return redis.error_reply('ERR the value and the fence need keys of their own')
end
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
redis.call('SET', value, ARGV[2])
return 1

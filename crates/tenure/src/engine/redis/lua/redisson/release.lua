-- Release locks in Redisson's format, and notify the clients that wait. Upholds I3, I5: only what the owner holds ends,
-- and only once.
-- KEYS[i] the name of the lock
-- ARGV[1] "nonce client fenced"
-- and for each lock: "owner", or "owner number linger keep" (nothing lingers)
-- Returns lines: the first argument, and for each lock how many entries of the owner are left, "none" if there was no
-- such entry, or "-error".
local client = string.match(ARGV[1], ' (%S+)')
local results, count, at = { ARGV[1] }, #KEYS, 1

-- The plain case: a mutex that was entered once.
local sharded = string.byte(client) == 123
while at <= count and #ARGV[at + 1] == 32 do
  local key, owner = KEYS[at], ARGV[at + 1]
  local field = string.sub(owner, 1, 8) .. '-' .. string.sub(owner, 9, 12) .. '-' .. string.sub(owner, 13, 16) .. '-'
    .. string.sub(owner, 17, 20) .. '-' .. string.sub(owner, 21, 32) .. ':0'
  local found = redis.pcall('HMGET', key, field, 'mode', field .. ':entries')
  if found.err or found[1] ~= '1' or found[2] or found[3] then
    break
  end
  redis.call('DEL', key)
  redis.call(sharded and 'SPUBLISH' or 'PUBLISH',
    'redisson_lock__channel:' .. (string.find(key, '{', 1, true) and key or '{' .. key .. '}'), 0)
  results[at + 1] = '0'
  at = at + 1
end
if at > count then
  return table.concat(results, '\n')
end

local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local fenced = '0'

--@ redisson/common.lua
--@ redisson/mutex.lua
--@ redisson/readers.lua
--@ redisson/permits.lua
--@ redisson/ending.lua

for i = at, count do
  results[i + 1] = checked(function()
    local owner, number, keep = ARGV[i + 1], '0', 0
    if #owner > 32 then
      owner, number, keep = string.match(owner, '^(%x+) (%x+) %d+ (%d+)$')
    end
    return end_entry(KEYS[i], owner, number, tonumber(keep))
  end)
end
return table.concat(results, '\n')

-- End entries of owners, and hand each lock that becomes free to its next waiter in the same step.
-- Upholds I3, I5, I10.
-- KEYS[i] lock
-- ARGV[1] nonce     ARGV[2] client     ARGV[3] channel prefix     ARGV[4] fence retention, ms
-- and for each lock: owner, and "-" for its only entry, or "number linger-in-ms"
-- Returns the nonce, and for each lock the number of entries that remain, -1 when there was no
-- such entry, or an error.
local CHANNEL, RETENTION = ARGV[3], tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local results = { ARGV[1] }
local rest = {}
for i, key in ipairs(KEYS) do
  local v = ARGV[i * 2 + 4] == '-' and redis.pcall('HMGET', key, 'o', 'u', 'w', 'n', 'k')
  -- The plain case: held by this owner alone, entered once, and nobody waits.
  if v and v[1] == ARGV[i * 2 + 3] and tonumber(v[2]) > now and not v[3] and not v[4] and not v[5] then
    redis.call('HDEL', key, 'o', 'u', 'c', 'x', 'm')
    results[i + 1] = 0
  else
    rest[#rest + 1] = i
  end
end
if #rest == 0 then
  return results
end

--@ lock.lua

for _, i in ipairs(rest) do
  local lock, wrong = open(KEYS[i])
  if lock then
    local wish = ARGV[i * 2 + 4]
    local number, linger = string.match(wish == '-' and '0 0' or wish, '^(%x+) (%d+)$')
    settle(lock)
    wrong = leave(lock, ARGV[i * 2 + 3], number, tonumber(linger)) or -1
    close(lock)
  end
  results[i + 1] = wrong
end
return results

-- Extend leases of owners that still hold their locks. Upholds I2, I3: a lease never becomes
-- shorter, and a missing one is never made.
-- KEYS[i] lock
-- ARGV[1] nonce     ARGV[2] client     ARGV[3] channel prefix     ARGV[4] fence retention, ms
-- and for each lock: owner, lease in ms
-- Returns the nonce, and for each lock 1 when extended, 0 when not held, or an error.
local CHANNEL, RETENTION = ARGV[3], tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local results = { ARGV[1] }
local rest = {}
for i, key in ipairs(KEYS) do
  local owner, lease = ARGV[i * 2 + 3], tonumber(ARGV[i * 2 + 4])
  local v = redis.pcall('HMGET', key, 'o', 'u', 'w', 'k', 'n')
  local ends = not v.err and v[2] and tonumber(v[2])
  if ends and v[1] == owner and ends > now and not v[3] and not v[4] and v[5] ~= '' then
    redis.call('HSET', key, 'u', math.max(ends, now + lease * 1000))
    redis.call('PEXPIRE', key, math.max(lease, math.ceil((ends - now) / 1000)) + RETENTION)
    results[i + 1] = 1
  else
    rest[#rest + 1] = i
  end
end
if #rest == 0 then
  return results
end

--@ lock.lua

local function renew(lock, owner, lease)
  settle(lock)
  local holder = find(lock, owner)
  if not holder or holder.entries == '' then
    return 0
  end
  holder.ends = math.max(holder.ends, now + lease * 1000)
  save(lock, holder)
  lock.lease = math.ceil((holder.ends - now) / 1000)
  return 1
end

for _, i in ipairs(rest) do
  local lock, wrong = open(KEYS[i])
  if lock then
    wrong = renew(lock, ARGV[i * 2 + 3], tonumber(ARGV[i * 2 + 4]))
    close(lock)
  end
  results[i + 1] = wrong
end
return results

-- Extend leases of owners that still hold their locks. Upholds I2, I3: a lease never becomes
-- shorter, and a missing one is never made.
-- KEYS[i] lock
-- ARGV[1] nonce     ARGV[2] client
-- and for each lock: owner, lease in ms (8 digits)
-- Returns lines: the nonce, and for each lock "1" when extended, "0" when not held, "-error".
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)
local results = { ARGV[1], '' }
local rest, late
for i = 1, #KEYS do
  local key, owner, lease = KEYS[i], ARGV[i * 2 + 1], ARGV[i * 2 + 2]
  local v = lease < '01000000' and redis.pcall('HMGET', key, 'o', 'n', 's')
  local holder = v and v[1]
  local since = holder and string.sub(holder, 34, 49)
  local ends = since and since + string.sub(holder, 51) * 1000
  -- The plain case: held by this owner alone, nobody waits, a lease of minutes.
  if holder and v[2] ~= '' and not v[3] and not (late and late[key])
    and string.sub(holder, 1, 32) == owner and ends > now then
    if ends < now + lease * 1000 then
      redis.call('HSET', key, 'o', owner .. ' ' .. stamp .. ' ' .. lease)
      -- The key is kept for two hours at a time: to say so every ten minutes is enough.
      if tonumber(since) < now - now % 600000000 then
        redis.call('PEXPIRE', key, '7200000')
      end
    end
    results[i + 1] = '1'
  else
    rest, late = rest or {}, late or {}
    rest[#rest + 1], late[key] = i, true
  end
end
if not rest then
  return table.concat(results, '\n')
end

--@ lock.lua

local function renew(lock, owner, lease)
  settle(lock)
  local holder = find(lock, owner)
  if not holder or holder.entries == '' then
    return '0'
  end
  holder.ends = math.max(holder.ends, now + lease * 1000)
  save(lock, holder)
  return '1'
end

for _, i in ipairs(rest) do
  on_lock(results, i, function(lock)
    return renew(lock, ARGV[i * 2 + 1], tonumber(ARGV[i * 2 + 2]))
  end)
end
return table.concat(results, '\n')

-- Extend leases of owners that still hold their locks. Upholds I2, I3: a lease never becomes
-- shorter, and a missing one is never made.
-- KEYS[i] lock
-- ARGV[1] nonce     ARGV[2] client
-- and for each lock: owner, lease in ms (8 digits)
-- Returns lines: the nonce and the server's time, and for each lock "1" when extended, "0" when not
-- held, or "-error"; with a plus sign behind it where there is more to settle than one call may do.
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)
local results = { ARGV[1] .. ' ' .. stamp, '' }
local rest, late, has_written
for i = 1, #KEYS do
  local key, owner, lease = KEYS[i], ARGV[i * 2 + 1], ARGV[i * 2 + 2]
  local v = lease < '01000000' and redis.pcall('HMGET', key, 'o', 'n', 's')
  local holder = v and v[1]
  local since = holder and tonumber(string.sub(holder, 34, 49))
  local length = since and tonumber(string.sub(holder, 51))
  local ends = length and since + length * 1000
  -- The plain case: held by this owner alone, no client waits, a lease of minutes, and the clock was
  -- not set back.
  if ends and v[2] ~= '' and not v[3] and not (late and late[key])
    and string.sub(holder, 1, 32) == owner and ends > now and since <= now then
    if ends < now + lease * 1000 then
      if not has_written then
        -- A server that is out of memory refuses HSET, unless the script has written before.
        redis.call('HDEL', key, '')
        has_written = true
      end
      redis.call('HSET', key, 'o', owner .. ' ' .. stamp .. ' ' .. lease)
      -- The key is kept for two hours at a time: to say so every ten minutes is enough.
      if since < now - now % 600000000 then
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
  go_on_without_memory(lock)
  holder.ends = math.max(holder.ends, lock.time + lease * 1000)
  save(lock, holder)
  return '1'
end

for _, i in ipairs(rest) do
  on_lock(results, i, function(lock)
    return renew(lock, ARGV[i * 2 + 1], tonumber(ARGV[i * 2 + 2]))
  end)
end
return table.concat(results, '\n')

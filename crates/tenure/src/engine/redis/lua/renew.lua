-- Extend leases of owners that still hold their locks. Upholds I2, I3: a lease never becomes
-- shorter, and a missing one is never made.
-- KEYS[i] lock
-- ARGV[1] nonce     ARGV[2] client     ARGV[3] for how long a fence outlives its lock, in ms
-- and for each lock: owner, lease in ms (8 digits)
-- Returns lines: the nonce and the server's time, and for each lock "1" when extended, "0" when not
-- held, or "-error"; with a plus sign behind it where there is more to settle than one call may do.
local retention = ARGV[3]
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)
local results = { ARGV[1] .. ' ' .. stamp, '' }
local texts = redis.call('MGET', unpack(KEYS))
local seen, rest = #KEYS > 1 and {}, nil
for i = 1, #KEYS do
  local key, text, lease = KEYS[i], texts[i], ARGV[i * 2 + 3]
  local is_again, ends, since, behind = seen and seen[key], nil, nil, nil
  if text and not is_again and string.sub(text, 18, 49) == ARGV[i * 2 + 2] then
    -- Its lease runs since its grant, the time of which is its fence, or since what is behind the client.
    behind = string.find(text, ' ', 60, true)
    since = tonumber(behind and string.sub(text, behind + 1, behind + 16) or string.sub(text, 1, 16))
    ends = since and (tonumber(string.sub(text, 51, 58)) or 0) * 1000 + since
  end
  -- The plain case: held by this owner alone, no client waits, and the clock was not set back.
  if ends and ends > now and since <= now and string.sub(text, 1, 16) <= stamp then
    results[i + 1] = '1'
    if ends < now + lease * 1000 then
      local held = string.sub(text, 1, 50) .. lease .. string.sub(text, 59, behind and behind - 1 or -1)
        .. ' ' .. stamp .. (behind and string.sub(text, behind + 17) or '')
      local written = redis.pcall('SET', key, held, 'PX', lease + retention)
      if written.err then
        -- A server that is out of memory refuses SET, unless the script has written before.
        redis.pcall('PEXPIRE', key, lease + retention)
        written = redis.pcall('SET', key, held, 'PX', lease + retention)
        results[i + 1] = written.err and '-' .. written.err or '1'
      end
    end
  else
    rest = rest or {}
    rest[#rest + 1] = i
    if is_again then
      texts[i] = nil
    end
  end
  if seen then
    seen[key] = true
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
  holder.ends = math.max(holder.ends, lock.time + lease * 1000)
  save(lock, holder)
  return '1'
end

for _, i in ipairs(rest) do
  on_lock(results, i, texts[i], function(lock)
    return renew(lock, ARGV[i * 2 + 2], tonumber(ARGV[i * 2 + 3]))
  end)
end
return table.concat(results, '\n')

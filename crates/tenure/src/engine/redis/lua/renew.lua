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
local seen, rest = {}, nil
for i = 1, #KEYS do
  local key, text, owner, lease = KEYS[i], texts[i], ARGV[i * 2 + 2], ARGV[i * 2 + 3]
  local is_held = text and string.sub(text, 18, 49) == owner and not seen[key]
  local since = is_held and tonumber(string.sub(text, 51, 66))
  local length = since and tonumber(string.sub(text, 68, 75))
  local ends = length and since + length * 1000
  -- The plain case: held by this owner alone, no client waits, and the clock was not set back.
  if ends and ends > now and since <= now and string.sub(text, 1, 10) <= time[1] then
    if ends < now + lease * 1000 then
      local held = string.sub(text, 1, 50) .. stamp .. ' ' .. lease .. string.sub(text, 76)
      local written = redis.pcall('SET', key, held, 'PX', lease + retention)
      if written.err then
        -- A server that is out of memory refuses SET, unless the script has written before.
        redis.pcall('PEXPIRE', key, lease + retention)
        written = redis.pcall('SET', key, held, 'PX', lease + retention)
      end
      results[i + 1] = written.err and '-' .. written.err or '1'
    else
      results[i + 1] = '1'
    end
  else
    rest = rest or {}
    rest[#rest + 1] = i
    if seen[key] then
      texts[i] = nil
    end
  end
  seen[key] = true
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
  on_lock(results, i, texts[i], function(lock)
    return renew(lock, ARGV[i * 2 + 2], tonumber(ARGV[i * 2 + 3]))
  end)
end
return table.concat(results, '\n')

-- Extend leases of entries that still hold their locks. Upholds I2, I3: a lease never becomes
-- shorter, and a missing one is never created.
-- KEYS[i] lock
-- ARGV[1] "nonce client retention": the caller's id, and for how many ms a fence outlives its lock
-- and for each lock: owner for entry 0, or "owner number" or "owner number fence-to-commit"; lease in ms (8 digits)
-- Returns lines: the first argument and the server's time, and for each lock "1" when extended, "0" when not
-- held, or "-error"; followed by a plus sign if there is more to settle than one call may do.
local retention = string.match(ARGV[1], '%d+$')
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)
local first_line = ARGV[1] .. ' ' .. stamp

--@ plain_begin.lua

-- Most leases of a call are equally long: values derived from the length are computed once.
local lease, runs_since, times = nil, nil, nil
-- The first renewal, and the first in each period of 100 s, sets the expiry of a lock's key 100 s later than it must
-- be; the others overwrite only the times in its text. The first 8 digits of a time are its period.
local RENEWAL_SLACK, period = 100000, string.sub(stamp, 1, 8)
for i = 1, #KEYS do
  local key, text, owner = KEYS[i], texts[i], ARGV[i * 2]
  local is_again, former, since, tail = seen and seen[key], nil, nil, nil
  if ARGV[i * 2 + 1] ~= lease then
    lease = ARGV[i * 2 + 1]
    runs_since, times = string.format('%016.0f', now - lease * 1000), stamp .. ' ' .. lease
  end
  -- "+": it was renewed before.
  local is_renewed = text and not is_again and string.byte(text, 17) == 43
  if is_renewed and string.sub(text, 44, 75) == owner then
    since, former, tail = string.sub(text, 18, 33), string.sub(text, 35, 42), 43
  elseif text and not is_again and not is_renewed and string.sub(text, 27, 58) == owner then
    since, former, tail = string.sub(text, 1, 16), string.sub(text, 18, 25), 26
  elseif text and not is_again and string.byte(text, 17) == 42 and string.sub(text, 44, 75) == owner then
    -- A star: its fence was proposed, and it is renewed for the first time.
    since, former, tail = string.sub(text, 18, 33), string.sub(text, 35, 42), 43
  end
  -- The plain case: held by this owner alone, without waiters, its lease runs, is not longer than the new
  -- one, and the clock was not set back. All times have the same number of digits.
  local is_written = false
  if since and since <= stamp and string.sub(text, 1, 16) <= stamp and (former == lease and since > runs_since
    or former < lease and (tonumber(since) or 0) + (tonumber(former) or 0) * 1000 > now) then
    if is_renewed and former == lease and string.sub(since, 1, 8) == period then
      is_written = type(redis.pcall('SETRANGE', key, '17', times)) == 'number'
    end
    if not is_written then
      local held = string.sub(text, 1, 16) .. '+' .. times .. string.sub(text, tail)
      local kept = lease + retention + RENEWAL_SLACK
      local written = redis.pcall('PSETEX', key, kept, held)
      if written.err then
        -- A server that is out of memory refuses to write, unless the script has written before.
        redis.pcall('PEXPIRE', key, kept)
        written = redis.pcall('PSETEX', key, kept, held)
      end
      is_written = not written.err
    end
  end
  local result = is_written and '1'
  --@ plain_result.lua
end

--@ plain_end.lua

--@ fast_path.lua

-- Extends the lease of a mutex with waiters. Returns nil if nothing was done.
local function extend(key, owner, lease)
  local mutex = read_mutex(key, 'c')
  local ends = now + lease * 1000
  if not mutex or not mutex.field or mutex.owner ~= owner or mutex.ends > ends or not first_waiter(mutex)
    or ends + retention * 1000 > mutex.expires then
    return nil
  end
  local written = redis.pcall('HSET', key, 'o', owner .. ' ' .. stamp .. ' ' .. lease)
  return type(written) == 'number' and '1' or nil
end

local left = on_fast_path(function(i, key, text)
  return not text and extend(key, ARGV[i * 2], ARGV[i * 2 + 1])
end)
if #left == 0 then
  return table.concat(results, '\n')
end

local client = string.match(ARGV[1], ' (%S+) %d+$')

--@ lock.lua

-- Raises the fence of a holder, and with it the last fence. What this leaves of its fences stays, at least one.
local function commit(lock, holder, text)
  local fence = tonumber(text)
  if not is_fence(text) then
    error({ err = 'AHEAD the fence ' .. text .. ' is a century ahead of the clock of this server: check both clocks' })
  end
  if holder.fence < fence then
    holder.fences = math.max(holder.fences + holder.fence - fence, 1)
    holder.fence = fence
  end
  lock.fence = math.max(lock.fence, fence)
end

local function renew(lock, options, lease)
  local owner, number, fence = string.match(options, '^(%x+) ?(%x*) ?(%d*)$')
  settle(lock)
  local holder = find(lock, owner)
  if not holder or not has(holder.entries, number == '' and '0' or number) then
    return '0'
  end
  holder.ends = math.max(holder.ends, lock.time + lease * 1000)
  if fence ~= '' then
    commit(lock, holder, fence)
  end
  save(lock, holder)
  return '1'
end

for _, i in ipairs(left) do
  on_lock(results, i, texts[i], function(lock)
    return renew(lock, ARGV[i * 2], tonumber(ARGV[i * 2 + 1]))
  end)
end
return table.concat(results, '\n')

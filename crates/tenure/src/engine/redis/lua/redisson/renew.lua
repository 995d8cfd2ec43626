-- Extend leases of owners that still hold their locks. Upholds I2, I3: a lease never becomes shorter, and a missing one is
-- never created.
-- KEYS[i] the name of the lock
-- ARGV[1] "nonce client fenced"
-- and for each lock: owner, followed by the number of an entry unless that is 0, lease in ms (8 digits)
-- Returns lines: the first argument and the server's time, and for each lock "1" when extended, "0" when not held, or
-- "-error".
local client = string.match(ARGV[1], ' (%S+)')
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local results, fenced = { ARGV[1] .. ' ' .. stamp }, '0'

--@ redisson/common.lua
--@ redisson/mutex.lua
--@ redisson/readers.lua
--@ redisson/permits.lua

local function renew_permits(key, owner, number, lease)
  local held, entries = nil, nil
  if redis.call('TYPE', key).ok == 'string' and settle_permits(key) then
    held, entries = holder_at(key, owner)
  end
  if not held or not has(entries, number) then
    return '0'
  end
  note_holder(key, owner, held, entries, now_in_ms() + lease)
  return '1'
end

local function renew(key, owner, number, lease)
  local field = field_of(owner)
  local found = redis.pcall('HMGET', key, field, field .. ':write', 'mode', field .. ':entries')
  if found.err then
    return renew_permits(key, owner, number, lease)
  end
  local reads, writes, mode, entries = tonumber(found[1] or 0), found[2], found[3], found[4]
  if reads == 0 and not writes then
    return '0'
  end
  if mode then
    check_slot(key)
    entries = redis.call('HGET', entries_key(key), owner)
  end
  if not has(entries or '0', number) then
    return '0'
  end
  if mode then
    for i = math.min(reads, MOST_ENTRIES), 1, -1 do
      keep_lease(key, field, i, lease)
    end
    if redis.call('EXISTS', entries_key(key)) == 1 then
      extend(entries_key(key), lease)
    end
  end
  extend(key, lease)
  return '1'
end

for i, key in ipairs(KEYS) do
  results[i + 1] = checked(function()
    local owner, number = string.match(ARGV[i * 2], '^(%x+) ?(%x*)')
    return renew(key, owner, number == '' and '0' or number, tonumber(ARGV[i * 2 + 1]))
  end)
end
return table.concat(results, '\n')

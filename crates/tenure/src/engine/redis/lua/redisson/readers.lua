-- RReadWriteLock: a hash with the field "mode", for each reader its field and how often it has entered, for the writer
-- "<owner>:write". The lease of each entry of a reader is that of a key. Another field would confuse Redisson, so the
-- numbers of entries, if there is more than the entry 0, are in a key of Tenure's own.

local function entries_key(key)
  return own_key('tenure_entries', key)
end

local function shared_channel(key)
  return prefixed('redisson_rwlock', key)
end

-- The key with the lease of a reader's entry.
local function lease_key(key, field, i)
  local whole = string.find(key, '{', 1, true) and key or '{' .. key .. '}'
  return whole .. ':' .. field .. ':rwlock_timeout:' .. i
end

-- Extends the lease of an entry. It never becomes shorter: another entry of the owner may have a longer lease, and which key is
-- whose is not known.
local function keep_lease(key, field, i, lease)
  local name = lease_key(key, field, i)
  redis.call('SET', name, 1, 'PX', math.max(redis.call('PTTL', name), lease))
end

local function note_entries(key, owner, list, lease)
  local entries = entries_key(key)
  if list == '0' then
    redis.call('HDEL', entries, owner)
  else
    redis.call('HSET', entries, owner, list)
    extend(entries, lease)
  end
end

-- The keys beside the lock come first: if the user has no right to one of them, nothing is left that does not expire.
local function enter_shared(key, request, is_writer)
  check_slot(key)
  if not is_writer then
    redis.call('SET', lease_key(key, request.field, 1), 1, 'PX', request.lease)
  end
  note_entries(key, request.owner, request.number, request.lease)
  local left = redis.call('PTTL', key)
  if is_writer then
    redis.call('HSET', key, 'mode', 'write', request.field .. ':write', 1)
  else
    redis.call('HSET', key, 'mode', 'read', request.field, 1)
  end
  if left >= 0 then
    redis.call('PEXPIRE', key, math.max(left, request.lease))
  else
    expire_new(key, request.lease)
  end
  return granted(request, 0, 1)
end

-- Another entry of a holder; a writer that reads stays a writer.
local function enter_again(key, request, field, is_writer)
  check_slot(key)
  local list = redis.call('HGET', entries_key(key), request.owner) or '0'
  local held = tonumber(redis.call('HGET', key, field)) or 1
  local is_new = not has(list, request.number)
  if not is_writer then
    keep_lease(key, field, is_new and held + 1 or held, request.lease)
  end
  if is_new then
    -- An entry that is counted and not noted ends with the last one that is.
    redis.call('HINCRBY', key, field, 1)
    note_entries(key, request.owner, list .. ',' .. request.number, request.lease)
  end
  extend(key, request.lease)
  return granted(request, 0, 1)
end

local function acquire_shared(key, request)
  local field, wants_all = request.field, request.permits > 1
  local found = redis.pcall('HMGET', key, 'mode', field, field .. ':write')
  if found.err then
    return mismatch(key, redis.call('TYPE', key).ok)
  end
  local mode, reads, writes = found[1], found[2], found[3]
  local left = redis.call('PTTL', key)
  if left == -1 then
    wrong_type('a hash that does not expire')
  elseif left == -2 then
    return enter_shared(key, request, wants_all)
  elseif not mode then
    return '4 m1'
  elseif writes then
    return enter_again(key, request, field .. ':write', true)
  elseif reads and wants_all then
    return '5 1'
  elseif reads then
    return enter_again(key, request, field, false)
  elseif mode == 'read' and not wants_all then
    return enter_shared(key, request, false)
  end
  return busy(request, math.max(left, 1))
end

-- The longest lease of the readers, in ms; nil if there are too many to look at.
local function longest_lease(key)
  if redis.call('HLEN', key) > MOST_FIELDS then
    return nil
  end
  local fields, longest, looked = redis.call('HGETALL', key), -3, 0
  for i = 1, #fields, 2 do
    local entries = math.min(tonumber(fields[i + 1]) or 0, MOST_ENTRIES)
    looked = looked + math.max(entries, 0)
    if looked > MOST_FIELDS then
      return nil
    end
    for entry = entries, 1, -1 do
      longest = math.max(longest, redis.call('PTTL', lease_key(key, fields[i], entry)))
    end
  end
  return longest
end

-- Readers have left: the lock ends with the last lease of the others, or now. If that is not known, or a writer is there, whose
-- lease is that of the lock, it stays as it is.
local function settle_readers(key)
  local longest = longest_lease(key)
  local is_writer = redis.call('HGET', key, 'mode') == 'write' and redis.call('HLEN', key) > 1
  if not longest or is_writer then
    return
  elseif longest > 0 then
    redis.call('PEXPIRE', key, longest)
  else
    redis.call('DEL', key)
    redis.call(PUBLISH, shared_channel(key), 0)
  end
end

-- How many entries of a reader are looked at.
local function entries_of(key, field)
  return math.min(tonumber(redis.call('HGET', key, field)) or 1, MOST_ENTRIES)
end

-- Ends all entries of a reader; the lock is to be settled after that.
local function drop_reader(key, field)
  for i = 1, entries_of(key, field) do
    redis.call('DEL', lease_key(key, field, i))
  end
  redis.call('HDEL', key, field)
end

-- The writer has left; readers that it admitted stay.
local function drop_writer(key, field)
  redis.call('HDEL', key, field .. ':write')
  if redis.call('HLEN', key) > 1 then
    redis.call('HSET', key, 'mode', 'read')
  else
    redis.call('DEL', key)
  end
  redis.call(PUBLISH, shared_channel(key), 1)
end

-- A writer with one entry becomes a reader.
local function keep_reading(key, field)
  redis.call('SET', lease_key(key, field, 1), 1, 'PX', math.max(redis.call('PTTL', key), 1))
  redis.call('HSET', key, 'mode', 'read', field, 1)
  redis.call('HDEL', key, field .. ':write')
  redis.call(PUBLISH, shared_channel(key), 1)
end

-- Deletes the last of a reader's leases. The one before it becomes as long: the entry that has left may have had the shorter.
local function drop_lease(key, field)
  local last = tonumber(redis.call('HGET', key, field)) or 1
  local left = redis.call('PTTL', lease_key(key, field, last))
  if last > 1 then
    keep_lease(key, field, last - 1, math.max(left, 1))
    redis.call('DEL', lease_key(key, field, last))
  end
end

local function release_shared(key, owner, field, number, is_writer, keep)
  check_slot(key)
  local list = redis.call('HGET', entries_key(key), owner) or '0'
  local rest, left = without(list, number)
  if not rest then
    return 'none'
  end
  if keep > 0 then
    if left == 0 and is_writer then
      keep_reading(key, field)
    end
    return tostring(left + 1)
  end
  if left == 0 then
    if is_writer then
      drop_writer(key, field)
    else
      drop_reader(key, field)
      settle_readers(key)
    end
    redis.call('HDEL', entries_key(key), owner)
    return '0'
  end
  if not is_writer then
    drop_lease(key, field)
  end
  redis.call('HINCRBY', key, is_writer and field .. ':write' or field, -1)
  redis.call('HSET', entries_key(key), owner, rest)
  return tostring(left)
end

-- A lock's text or fields: parsing them, and writing back the changes.

--@ common.lua

local function plain(number)
  return string.format('%.0f', number)
end

-- A fence as it is stored: all have the same number of digits.
local function stored(fence)
  return string.format('%016.0f', fence)
end

-- The error for a value that Tenure did not write. Raised before the first write of an operation, unless it
-- is about one waiter or holder of many.
local function damaged(key, what)
  return { err = 'DAMAGED the ' .. what .. ' of ' .. key .. ' was not written by this version of Tenure: inspect the '
    .. 'key, and delete it if no client of this or another version needs the lock' }
end

-- Reading -----------------------------------------------------------------------------------------

local function is_fence(text)
  return string.match(text, '^%d+$') and #text == 16 and tonumber(text) < LARGEST_FENCE and text - now <= CENTURY
end

local function read_holder(fence, owner, since, lease, client, entries, more)
  local extra, note = string.match(more or '0 ', '^(%d+) (%S*)$')
  if not lease or #owner ~= 32 or #since ~= 16 or #lease ~= 8 or not extra or not client
    or since - now > CENTURY or not string.match(entries or '0', '^[%x,]*$') then
    return nil
  end
  return {
    owner = owner, ends = since + lease * 1000, since = tonumber(since), client = client,
    entries = entries or '0', permits = 1, fence = fence - extra, fences = extra + 1, note = note,
  }
end

-- Parses a lock that is a string; returns the part that is damaged, or nil.
local function read_text(lock, text)
  lock.form = 'text'
  if is_fence(text) then
    lock.fence = tonumber(text)
    return nil
  end
  local fence, since, lease, owner, client, more = held_parts(text)
  if not fence or not is_fence(fence) then
    return 'text'
  end
  lock.fence = tonumber(fence)
  lock.holder = read_holder(lock.fence, owner, since, lease, client, nil, more ~= '' and more or nil)
  return not lock.holder and 'holder' or nil
end

local function set_kind(lock, kind)
  lock.kind, lock.letter, lock.limit = kind, string.sub(kind, 1, 1), tonumber(string.sub(kind, 2))
  lock.single = lock.letter == 'm'
end

-- Parses the state of a lock that is a hash; false if it was not written by Tenure.
local function read_state(lock, state, parking, use)
  local kind, waiting, ticket, head, last, expires =
    string.match(state, '^2 ([mrslb]%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  local first, returned, parked, reserved, shift =
    string.match(parking or '0 0 0 0 0', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  local used, count, bound, cursor, least =
    string.match(use or '0 0 0 0 0', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not kind or not first or not used or last - now > CENTURY or tonumber(shift) > CENTURY
    or expires - now > CENTURY or bound - now > CENTURY then
    return false
  end
  set_kind(lock, kind)
  lock.waiting, lock.ticket, lock.head = tonumber(waiting), tonumber(ticket), tonumber(head)
  lock.last, lock.expires = tonumber(last), tonumber(expires)
  lock.first = parking and tonumber(first) or lock.head
  lock.returned, lock.parked = tonumber(returned), tonumber(parked)
  lock.reserved, lock.shift = tonumber(reserved), tonumber(shift)
  lock.used, lock.count, lock.bound = tonumber(used), tonumber(count), tonumber(bound)
  lock.cursor, lock.least = tonumber(cursor), tonumber(least)
  return true
end

-- Parses a lock that is a hash, from its fields f, s, o, c, m, n, p, u and x; returns the part that is damaged, or nil.
local function read_fields(lock, v)
  lock.form, lock.was = 'hash', { f = v[1], s = v[2], o = v[3], c = v[4], m = v[5], n = v[6],
    p = v[7], u = v[8], x = v[9] }
  if v[1] and not is_fence(v[1]) then
    return 'fence'
  end
  lock.fence = tonumber(v[1]) or 0
  if v[1] and not v[2] and not v[3] and redis.call('HLEN', lock.key) == 1 then
    -- The fence of a free lock in the first layout.
    return nil
  end
  if not v[2] or not read_state(lock, v[2], v[7], v[8]) then
    return 'state'
  end
  if v[3] then
    local owner, since, lease = string.match(v[3], '^(%x+) (%d+) (%d+)$')
    lock.holder = owner and read_holder(lock.fence, owner, since, lease, v[4], v[6], v[5])
    if not lock.holder then
      return 'holder'
    end
  end
  if v[9] then
    local till, record = string.match(v[9], '^(%d+) (.+)$')
    if not till or till - now > CENTURY then
      return 'record'
    end
    lock.till, lock.record = tonumber(till), record
  end
end

-- Sets the lock's time. A mutex that is a string stores none: if the clock was set back, its lease starts
-- again now.
local function set_time(lock)
  local holder = lock.holder
  if lock.last then
    local floor = math.max(lock.last, holder and holder.since or 0)
    lock.changed = now + lock.shift < floor
    lock.time = math.max(now + lock.shift, floor)
    lock.shift = lock.time - now
    return
  end
  lock.time = now
  if holder and holder.since > now then
    holder.ends = holder.ends - holder.since + now
    lock.changed = true
  end
end

-- Reads the lock, or returns an error if the key was not written by Tenure. `text` is the key's string if the plain
-- case has just read it, and false if it has found none.
local function open(key, text)
  local lock = {
    key = key, fence = 0, kind = 'm1', letter = 'm', limit = 1, single = true, was = {}, keep = 0, work = WORK_LIMIT,
    waiting = 0, ticket = 0, head = 1, first = 1, returned = 0, parked = 0, reserved = 0, shift = 0,
    used = 0, count = 0, bound = 0, cursor = 0, least = 0, expires = 0,
  }
  if text == nil then
    text = redis.call('MGET', key)[1]
  end
  local wrong
  if text then
    wrong = read_text(lock, text)
  else
    local v = redis.pcall('HMGET', key, 'f', 's', 'o', 'c', 'm', 'n', 'p', 'u', 'x')
    if v.err then
      return nil, v
    elseif v[1] or v[2] or redis.call('EXISTS', key) == 1 then
      wrong = read_fields(lock, v)
    end
  end
  if wrong then
    return nil, damaged(key, wrong)
  end
  set_time(lock)
  if lock.till and lock.till <= lock.time then
    lock.till, lock.record, lock.changed = nil, nil, true
  end
  return lock
end

local function is_idle(lock)
  return not lock.holder and lock.count == 0 and lock.waiting == 0
end

-- Writing -----------------------------------------------------------------------------------------

-- A server that is out of memory refuses commands that may need more, until the script has written
-- something. So an operation that only extends or ends a hold begins with a write that needs no memory.
local function write_despite_oom(lock)
  if lock.form == 'hash' then
    redis.call('HDEL', lock.key, '')
  elseif lock.form == 'text' then
    -- The expiry that it has anyway.
    local left = redis.call('PTTL', lock.key)
    redis.call('PEXPIRE', lock.key, left > 0 and left or retention)
  end
end

-- Whether a write was refused for lack of memory. Older servers put the error code into the text, after a dash.
local function is_full(written)
  return string.find(written.err, '^OOM ') or string.find(written.err, ' -OOM ', 1, true)
end

-- Sets fields of the lock. On a server that is out of memory only a new claim fails.
local function put(lock, key, ...)
  local written = redis.pcall('HSET', key, ...)
  if type(written) == 'table' then
    if lock.is_new_claim or not is_full(written) then
      error(written)
    end
    write_despite_oom(lock)
    redis.call('HSET', key, ...)
  end
end

-- A lease as its start and length: the length is in whole milliseconds, so the start is chosen to give the exact end.
local function lease_of(lock, holder, shift)
  local lease = math.max(math.ceil((holder.ends - lock.time) / 1000), 0)
  return string.format('%016.0f', holder.ends - shift - lease * 1000), lease
end

local function more_of(holder)
  return (holder.fences > 1 or holder.note ~= '') and holder.fences - 1 .. ' ' .. holder.note or nil
end

-- The fields of the lock itself.
local function fields_of(lock)
  local holder, since, lease = lock.holder, nil, nil
  if holder then
    since, lease = lease_of(lock, holder, 0)
  end
  local is_parking = lock.parked > 0 or lock.returned > 0 or lock.shift > 0
  return {
    s = table.concat({
      2, lock.kind, lock.waiting, lock.ticket, lock.head, plain(lock.time), plain(lock.expires),
    }, ' '),
    f = lock.fence > 0 and stored(lock.fence) or nil,
    o = holder and string.format('%s %s %08d', holder.owner, since, lease) or nil,
    c = holder and holder.client,
    m = holder and more_of(holder),
    n = holder and holder.entries ~= '0' and holder.entries or nil,
    p = is_parking and table.concat({
      lock.first, lock.returned, lock.parked, plain(lock.reserved), plain(lock.shift),
    }, ' ') or nil,
    u = lock.count > 0 and table.concat({
      lock.used, lock.count, plain(lock.bound), lock.cursor, plain(lock.least),
    }, ' ') or nil,
    x = lock.till and plain(lock.till) .. ' ' .. lock.record or nil,
  }
end

-- Whether a key exists that is not the lock's own. While a cluster moves the slot, only the lock's own key may be used:
-- the server refuses, and so nothing has changed.
local function exists_beside(key)
  local found = redis.pcall('EXISTS', key)
  if type(found) == 'table' then
    local is_in_transit = string.find(found.err, 'non local key', 1, true)
    error(is_in_transit and { err = 'TRYAGAIN the cluster moves the slot of ' .. key } or found)
  end
  return found == 1
end

-- Writes the fields that have changed, all at once. A string is converted to a hash through another key of the same
-- slot, which no other client sees: the lock exists at any time, and in a cluster that is moving the slot the call
-- fails without any change.
local function write_fields(lock)
  local is, was, set, removed = fields_of(lock), lock.was, {}, {}
  for name, value in pairs(is) do
    if was[name] ~= value then
      set[#set + 1], set[#set + 2] = name, value
    end
  end
  for name, value in pairs(was) do
    if value and not is[name] then
      removed[#removed + 1] = name
    end
  end
  if #removed > 0 then
    redis.call('HDEL', lock.key, unpack(removed))
  end
  if lock.form == 'text' then
    local new = lock.key .. ':new'
    -- A key that another program has put there is no part of the lock. EXISTS first, because after any DEL a server
    -- that is out of memory would no longer refuse the writes of this script.
    if exists_beside(new) then
      redis.call('DEL', new)
    end
    put(lock, new, unpack(set))
    local wrong = replace_by_hash(lock.key)
    if wrong then
      error(wrong)
    end
  elseif #set > 0 then
    put(lock, lock.key, unpack(set))
  end
  lock.form, lock.was = 'hash', is
end

-- For how many ms the key is to be kept at least, by the expiry that it has. A client that waits or inspects does not
-- shorten the expiry that another one has set: only a client that acquires or releases the lock decides how long its
-- fence is kept.
local function current_ttl(lock)
  if lock.form == 'text' then
    return lock.is_own and 0 or redis.call('PTTL', lock.key)
  end
  return math.ceil((lock.expires - lock.time) / 1000)
end

-- Converts the lock to a hash, to which waiters and holders can be added.
local function make_hash(lock)
  lock.changed = true
  if lock.form == 'text' then
    lock.expires = lock.time + current_ttl(lock) * 1000
    write_fields(lock)
    lock.is_new = true
  end
end

-- Overwrites the key with a string. On a server that is out of memory only a new claim fails.
local function write_text(lock, text, ttl)
  local written = redis.pcall('SET', lock.key, text, 'PX', plain(ttl))
  if written.err and (lock.is_new_claim or not is_full(written)) then
    error(written)
  elseif written.err then
    write_despite_oom(lock)
    redis.call('SET', lock.key, text, 'PX', plain(ttl))
  end
end

-- Writes the lock back if it has changed, and sets the expiry of its key: the retention after the last lease or waiter,
-- plus as much as its fence is ahead of the clock, which would otherwise give a smaller one later (I4); but no earlier
-- than another client has set it.
local function close(lock)
  if not lock.changed then
    return
  end
  local holder = lock.holder
  local ahead = math.max(math.ceil((lock.fence - now) / 1000), 0)
  if lock.waiting == 0 and lock.count == 0 and not lock.till then
    if not holder and lock.fence == 0 then
      redis.call('DEL', lock.key)
      return
    elseif not holder then
      return write_text(lock, stored(lock.fence), math.max(retention + ahead, lock.is_own and 0 or current_ttl(lock)))
    elseif holder.entries == '0' then
      local since, lease = lease_of(lock, holder, lock.shift)
      -- A holder of another client has set how long its fence is kept, and sets it again when it releases.
      local at_least = holder.client ~= client and current_ttl(lock) or nil
      return write_text(lock, held_text(stored(lock.fence), since, lease, holder.owner, holder.client,
        more_of(holder), retention + ahead, at_least))
    end
  end
  local last = math.max(lock.keep, holder and holder.ends or 0, lock.till or 0, lock.time)
  last = last + (retention + ahead) * 1000
  local sets_expiry = lock.form ~= 'hash' or lock.is_new or last > lock.expires
  if sets_expiry then
    lock.expires = math.max(last + SLACK, lock.time + current_ttl(lock) * 1000)
  end
  write_fields(lock)
  if sets_expiry then
    redis.call('PEXPIRE', lock.key, plain(math.ceil((lock.expires - lock.time) / 1000)))
  end
end

-- Takes new fences: returns the first, which is no smaller than the proposal if there is one, and how many. No more
-- than requested, and never so many that they run ahead of the clock by more than that: otherwise the fences after a
-- loss of all data would not be larger.
local function next_fence(lock, wanted, proposal)
  lock.changed = true
  local first = math.max(lock.fence + 1, proposal or now)
  local count = math.max(1, math.min(wanted, now + wanted + 1 - first))
  lock.fence = first + count - 1
  return first, count
end

-- The names of fields: a letter with the numbers of a range.
local function numbered(letter, from, to)
  local names = {}
  for number = from, to do
    names[#names + 1] = letter .. number
  end
  return names
end

-- What a lock is, in its one key: included by every operation, after its plain case.
--
-- Times are microseconds of the server's clock; texts of others are percent-encoded.
--
-- A free lock is a string, its last fence, which outlives it for the retention. A mutex that one client
-- holds, entered once, and that no client waits for, is a string, too:
--   "fence owner lease client since extra note", the first three with 16, 32 and 8 digits: the last of
--   its fences, and the length of its lease in ms. Since when that runs is absent if it is since its
--   grant, the time of which is its fence; how many fences it has beyond one, and a note, are absent if
--   there is neither.
-- Everything else is a hash:
--   s  "2 kind-and-limit waiting ticket head last expires": how many wait; the last ticket, and the
--      first that may be unparked; the lock's time when this was written, and when the key expires
--   f  last fence
--   o  "owner since lease" of the holder of a mutex     c  its client     m  "extra note", if any
--   n  the numbers of its entries (absent: only 0; empty: released, but lingering)
--   u  "used count bound cursor least" of all kinds but a mutex: permits taken, how many hold them; no
--      lease ends before the bound; where the search for ended ones stands, and the least end it saw
--   h<owner>   a holder     i<number>  its owner, numbers without gaps
--   p  "first returned parked reserved shift" (absent: nothing of it): the first ticket there may be,
--      how many tickets have returned, how many waiters are parked; until when a free lock is reserved
--      for them; how far the lock's time is ahead of the clock
--   q<ticket>  a waiter     w<entry>  its ticket     @<owner>  the numbers of its entries that wait
--   r<number>  tickets of waiters that were parked and have asked again, as a heap
--   x  "until record" of the last forced release
--
-- The state says "2", and so no client of the first layout takes this for a free lock, nor this one an
-- old lock. All of it is in one key, because a cluster that moves a slot moves key by key (ADR 12).
--
-- The lock's time is the server's clock, but it never goes back: when the clock is set back, the
-- lock's time stands still for a moment and then goes on at the same distance. So leases and
-- heartbeats that have begun still end, no later than their own length after the step (A2). Stamps
-- and fences are the clock's.

-- The channel on which a client hears of its grants, with its id behind it.
local CHANNEL = 'tenure:wake:'
-- A hash is told to live for so much longer than it must, so that it need not be told each time.
local SLACK = 60 * 1000000
-- One call serves, parks or purges at most this many waiters, and ends at most this many leases: a
-- few milliseconds at worst. A plus sign behind an answer asks its client to go on.
local AT_MOST = 1000
-- Of parked waiters that are dead, a call forgets so many.
local PARKED_AT_MOST = 250
-- Of so many holders the first end is told exactly.
local FEW = 32
-- Fences are below 2^53, with room for those that follow.
local LARGEST_FENCE = 9007199254740991 - 1000000
-- Later than any time.
local NEVER = 9007199254740991
-- No clock is wrong by a hundred years, in µs. What is stored and says so was not written by Tenure; taken
-- for true, it would end every lease.
local CENTURY = 100 * 365 * 86400 * 1000000
-- A lock that is free while all its waiters are parked is reserved for so long, in µs: a client
-- whose wake-ups were interrupted connects again and asks within this time, and is served in order.
local RESERVED = 100 * 1000

local function plain(number)
  return string.format('%.0f', number)
end

-- The error of what Tenure did not write. Raised before the first write of an operation, unless it
-- is about one waiter or holder of many.
local function damaged(key, what)
  return { err = 'DAMAGED the ' .. what .. ' of ' .. key .. ' is not what this Tenure writes: look at the '
    .. 'key, and delete it if no client needs the lock, nor one of another version' }
end

-- Reading -----------------------------------------------------------------------------------------

local function is_fence(text)
  return string.match(text, '^%d+$') and #text == 16 and tonumber(text) < LARGEST_FENCE
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

-- A lock that is a string: what is wrong with it, or nil.
local function read_text(lock, text)
  lock.form = 'text'
  if is_fence(text) then
    lock.fence = tonumber(text)
    return nil
  end
  local fence, owner, lease, client, since, more =
    string.match(text, '^(%d+) (%x+) (%d+) (%S+) ?(%d*) ?(.*)$')
  if not fence or not is_fence(fence) then
    return 'text'
  end
  since = since ~= '' and since or fence
  lock.fence = tonumber(fence)
  lock.holder = read_holder(lock.fence, owner, since, lease, client, nil, more ~= '' and more or nil)
  return not lock.holder and 'holder' or nil
end

local function set_kind(lock, kind)
  lock.kind, lock.letter, lock.limit = kind, string.sub(kind, 1, 1), tonumber(string.sub(kind, 2))
  lock.single = lock.letter == 'm'
end

-- The state of a lock that is a hash: false if it is not what Tenure writes.
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

-- A lock that is a hash, from its fields f, s, o, c, m, n, p, u and x: what is wrong with it, or nil.
local function read_fields(lock, v)
  lock.form, lock.was = 'hash', { f = v[1], s = v[2], o = v[3], c = v[4], m = v[5], n = v[6],
    p = v[7], u = v[8], x = v[9] }
  if v[1] and not is_fence(v[1]) then
    return 'fence'
  end
  lock.fence = tonumber(v[1]) or 0
  if v[1] and not v[2] and not v[3] and redis.call('HLEN', lock.key) == 1 then
    -- The fence of a lock that clients of the first layout have left.
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

-- Sets the lock's time. A plain mutex remembers none: where the clock was set back, its lease begins
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

-- The lock as it is, or an error if what is in its place is not Tenure's. Its text is known if the
-- plain case has just read it: false if there is none.
local function open(key, text)
  local lock = {
    key = key, fence = 0, kind = 'm1', letter = 'm', limit = 1, single = true, was = {}, keep = 0,
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

-- A server that is out of memory refuses commands that may need more, until a script has written
-- something. What only keeps or ends something goes on there: it begins with a write that needs none.
local function go_on_without_memory(lock)
  if lock.form == 'hash' then
    redis.call('HDEL', lock.key, '')
  elseif lock.form == 'text' then
    -- What it is told here is told again, better, when the lock is closed.
    redis.call('PEXPIRE', lock.key, 86400000)
    lock.changed = true
  end
end

-- Leases are whole milliseconds from some moment: any end can be told as one.
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
    f = lock.fence > 0 and plain(lock.fence) or nil,
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

-- Writes what has changed, all fields at once. A string becomes a hash by way of another key of the
-- same slot, which is never seen: so there is no moment without the lock, and in a cluster that is
-- moving the slot nothing is done but an error told.
local function write_fields(lock)
  local is, was, set, gone = fields_of(lock), lock.was, {}, {}
  for name, value in pairs(is) do
    if was[name] ~= value then
      set[#set + 1], set[#set + 2] = name, value
    end
  end
  for name, value in pairs(was) do
    if value and not is[name] then
      gone[#gone + 1] = name
    end
  end
  if #gone > 0 then
    redis.call('HDEL', lock.key, unpack(gone))
  end
  local is_text = lock.form == 'text'
  if #set > 0 then
    redis.call('HSET', is_text and lock.key .. ':new' or lock.key, unpack(set))
  end
  if is_text then
    redis.call('RENAME', lock.key .. ':new', lock.key)
  end
  lock.form, lock.was = 'hash', is
end

-- Makes the lock a hash, to which waiters and holders can be added.
local function spread(lock)
  lock.changed = true
  if lock.form == 'text' then
    write_fields(lock)
    lock.is_new = true
  end
end

-- A string in the place of what there is. What is not a new grant goes on without memory.
local function write_text(lock, text, ttl)
  local written = redis.pcall('SET', lock.key, text, 'PX', plain(ttl))
  if written.err and lock.is_granted then
    error(written)
  elseif written.err then
    go_on_without_memory(lock)
    redis.call('SET', lock.key, text, 'PX', plain(ttl))
  end
end

-- Writes the lock back, if it has changed, and how long its key is to be kept: for the retention
-- after the last that there is, longer by as much as its fence is ahead of the clock, which would
-- otherwise give a smaller one (I4).
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
      return write_text(lock, plain(lock.fence), retention + ahead)
    elseif holder.entries == '0' then
      local since, lease = lease_of(lock, holder, lock.shift)
      local fence, more = plain(lock.fence), more_of(holder)
      return write_text(lock, table.concat({
        fence, holder.owner, string.format('%08d', lease), holder.client,
        (since ~= fence or more) and since or nil, more,
      }, ' '), lease + retention + ahead)
    end
  end
  local last = math.max(lock.keep, holder and holder.ends or 0, lock.till or 0, lock.time)
  last = last + (retention + ahead) * 1000
  local is_told = lock.form ~= 'hash' or lock.is_new or last > lock.expires
  if is_told then
    lock.expires = last + SLACK
  end
  write_fields(lock)
  if is_told then
    redis.call('PEXPIRE', lock.key, plain(math.ceil((lock.expires - lock.time) / 1000)))
  end
end

-- The first of some fences, and how many: no more than wanted, and never so many that they run ahead
-- of the calendar by more than that. Fences that did could not be overtaken after all data were lost.
local function next_fence(lock, wanted)
  lock.changed = true
  local count = math.max(1, math.min(wanted, now + wanted - lock.fence))
  local first = math.max(lock.fence + 1, now)
  lock.fence = first + count - 1
  return first, count
end

-- Fields with numbers behind a letter.
local function numbered(letter, from, to)
  local names = {}
  for number = from, to do
    names[#names + 1] = letter .. number
  end
  return names
end

-- Holders ---------------------------------------------------------------------------------------

local function read_one(lock, owner, text)
  local index, ends, permits, fence, fences, client, entries, note =
    string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (%S*)$')
  if not index then
    error(damaged(lock.key, 'holder ' .. owner))
  end
  return {
    owner = owner, index = tonumber(index), ends = tonumber(ends), permits = tonumber(permits),
    fence = tonumber(fence), fences = tonumber(fences), client = client,
    entries = entries == '-' and '' or entries, note = note,
  }
end

local function text_of_one(holder)
  return table.concat({
    holder.index, plain(holder.ends), holder.permits, plain(holder.fence), holder.fences,
    holder.client, holder.entries == '' and '-' or holder.entries, holder.note,
  }, ' ')
end

local function find(lock, owner)
  if lock.single then
    return lock.holder and lock.holder.owner == owner and lock.holder or nil
  end
  local text = lock.count > 0 and redis.call('HGET', lock.key, 'h' .. owner)
  return text and read_one(lock, owner, text) or nil
end

-- The single holder of a mutex is written when the lock is closed.
local function save(lock, holder)
  lock.changed = true
  if lock.single then
    lock.holder = holder
    return
  end
  lock.keep = math.max(lock.keep, holder.ends)
  if not holder.index and lock.letter == 'b' then
    -- At a barrier one who passed before may pass again, in its own place.
    local former = find(lock, holder.owner)
    holder.index = former and former.index
  end
  if holder.index then
    redis.call('HSET', lock.key, 'h' .. holder.owner, text_of_one(holder))
  else
    spread(lock)
    lock.used, lock.count = lock.used + holder.permits, lock.count + 1
    holder.index = lock.count
    redis.call(
      'HSET', lock.key, 'h' .. holder.owner, text_of_one(holder), 'i' .. lock.count, holder.owner)
  end
  lock.bound = lock.count == 1 and holder.ends or math.min(lock.bound, holder.ends)
  lock.least = math.min(lock.least, holder.ends)
end

-- Takes a holder out; the last one gets its number.
local function take_out(lock, owner, index, permits)
  local last = lock.count
  if index ~= last then
    local mover = redis.call('HGET', lock.key, 'i' .. last)
    local text = mover and redis.call('HGET', lock.key, 'h' .. mover)
    if text then
      local moved = read_one(lock, mover, text)
      moved.index = index
      redis.call('HSET', lock.key, 'h' .. mover, text_of_one(moved), 'i' .. index, mover)
    end
  end
  redis.call('HDEL', lock.key, 'h' .. owner, 'i' .. last)
  lock.used, lock.count = lock.used - permits, last - 1
  if lock.used < 0 or lock.count == 0 then
    lock.used = 0
  end
end

local function remove(lock, owner)
  lock.changed = true
  if lock.single then
    lock.holder = nil
    return
  end
  local holder = find(lock, owner)
  if holder then
    take_out(lock, owner, holder.index, holder.permits)
  end
end

-- Some holders, by their numbers: their owners and what is written of them.
local function some(lock, from, to)
  if from > to then
    return {}, {}
  end
  local owners, names = redis.call('HMGET', lock.key, unpack(numbered('i', from, to))), {}
  for at, owner in ipairs(owners) do
    names[at] = 'h' .. (owner or '')
  end
  return owners, redis.call('HMGET', lock.key, unpack(names))
end

-- Owners of the lock, so many at most.
local function owners(lock, most)
  if lock.single then
    return lock.holder and { lock.holder.owner } or {}
  end
  local list = {}
  for _, owner in ipairs((some(lock, 1, math.min(most, lock.count)))) do
    list[#list + 1] = owner or nil
  end
  return list
end

-- When the first lease ends; of very many, no later than that.
local function first_end(lock)
  if lock.single then
    return lock.holder and lock.holder.ends
  elseif lock.count == 0 or lock.count > FEW then
    return lock.count > 0 and lock.bound or nil
  end
  local list, texts = some(lock, 1, lock.count)
  local first = NEVER
  for at, owner in ipairs(list) do
    first = math.min(first, texts[at] and read_one(lock, owner, texts[at]).ends or NEVER)
  end
  return first
end

-- Ends leases. The holders are looked at from the last to the first, some in each call, when the
-- bound says that a lease may have ended.
local function expire(lock)
  if lock.single then
    if lock.holder and lock.holder.ends <= lock.time then
      remove(lock, lock.holder.owner)
    end
    return
  elseif lock.count == 0 or lock.cursor == 0 and lock.bound > lock.time then
    return
  end
  lock.changed = true
  if lock.cursor == 0 then
    lock.cursor, lock.least = lock.count, NEVER
  end
  local to = math.min(lock.cursor, lock.count)
  local from = math.max(to - AT_MOST + 1, 1)
  local list, texts = some(lock, from, to)
  for at = #list, 1, -1 do
    local text = texts[at]
    local holder = text and read_one(lock, list[at], text)
    if holder and holder.ends > lock.time then
      lock.least = math.min(lock.least, holder.ends)
    else
      -- Of a record that is gone the permits are unknown: they come back when all are.
      take_out(lock, list[at] or '', from + at - 1, holder and holder.permits or 0)
    end
  end
  lock.cursor = from - 1
  if lock.cursor == 0 then
    lock.bound = lock.least
  else
    lock.more = true
  end
end

-- Whether so many permits are free (I1), and the owner has no former hold that lingers. One who
-- asked for more than the limit has become since must be alone. A latch must be full; a barrier is
-- opened by the last who comes.
local function fits(lock, owner, permits)
  if lock.single then
    return not lock.holder
  elseif lock.letter == 'l' then
    return lock.used >= lock.limit
  elseif lock.letter == 'b' then
    return false
  end
  return lock.used + permits <= math.max(lock.limit, permits) and not find(lock, owner)
end

-- Lists of entry numbers, with commas between -----------------------------------------------------

local function has(list, number)
  return string.find(',' .. list .. ',', ',' .. number .. ',', 1, true) ~= nil
end

local function with(list, number)
  if has(list, number) then
    return list
  end
  return list == '' and number or list .. ',' .. number
end

local function without(list, number)
  local rest = {}
  for other in string.gmatch(list, '[^,]+') do
    if other ~= number then
      rest[#rest + 1] = other
    end
  end
  return table.concat(rest, ','), #rest
end

-- The queue ---------------------------------------------------------------------------------------

local function read_waiter(ticket, text)
  local parked, alive, permits, lease, claim, fences, since, client, owner, number, note =
    string.match(text, '^([01]) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%x+):(%x+) (%S*)$')
  return parked and {
    ticket = ticket, parked = parked == '1', alive = tonumber(alive), permits = tonumber(permits),
    lease = tonumber(lease), claim = tonumber(claim), fences = tonumber(fences), since = since,
    client = client, owner = owner, number = number, entry = owner .. ':' .. number, note = note,
  }
end

-- The waiter with a ticket; nil if there is none, false if it is not what Tenure writes.
local function waiter_at(lock, ticket)
  local text = redis.call('HGET', lock.key, 'q' .. ticket)
  if text then
    return read_waiter(ticket, text) or false
  end
end

local function waiter_of(lock, entry)
  local ticket = lock.waiting > 0 and tonumber(redis.call('HGET', lock.key, 'w' .. entry) or nil)
  local waiter = ticket and waiter_at(lock, ticket)
  return waiter and waiter.entry == entry and waiter or nil
end

local function write_waiter(lock, waiter)
  lock.changed, lock.keep = true, math.max(lock.keep, waiter.alive)
  redis.call('HSET', lock.key, 'q' .. waiter.ticket, table.concat({
    waiter.parked and 1 or 0, plain(waiter.alive), waiter.permits, waiter.lease, waiter.claim,
    waiter.fences, waiter.since, waiter.client, waiter.entry, waiter.note,
  }, ' '), 'w' .. waiter.entry, waiter.ticket)
end

-- The entries of an owner that wait; only re-entrant owners have more than one.
local function note_waiting(lock, waiter, list)
  if list == '' then
    redis.call('HDEL', lock.key, '@' .. waiter.owner)
  else
    redis.call('HSET', lock.key, '@' .. waiter.owner, list)
  end
end

local function waiting_of(lock, owner)
  return redis.call('HGET', lock.key, '@' .. owner) or ''
end

-- Writes down a waiter that is in the queue.
local function remember(lock, waiter)
  write_waiter(lock, waiter)
  lock.waiting = lock.waiting + 1
  if waiter.number ~= '0' then
    note_waiting(lock, waiter, with(waiting_of(lock, waiter.owner), waiter.number))
  end
end

local function enqueue(lock, waiter)
  spread(lock)
  if lock.waiting == 0 and lock.returned == 0 then
    lock.ticket, lock.head, lock.first = 0, 1, 1
  end
  lock.ticket = lock.ticket + 1
  waiter.ticket = lock.ticket
  remember(lock, waiter)
end

local function dequeue(lock, waiter)
  lock.changed, lock.waiting = true, lock.waiting - 1
  redis.call('HDEL', lock.key, 'q' .. waiter.ticket, 'w' .. waiter.entry)
  if waiter.number ~= '0' then
    note_waiting(lock, waiter, (without(waiting_of(lock, waiter.owner), waiter.number)))
  end
  if waiter.parked then
    lock.parked = lock.parked - 1
  end
  if waiter.ticket == lock.head then
    lock.head = lock.head + 1
  end
end

-- Tickets that have returned: a heap, the smallest first. What is gone or parked again is taken out
-- when it comes to the top.
local function put_back(lock, ticket)
  local at = lock.returned + 1
  lock.returned = at
  while at > 1 do
    local above = math.floor(at / 2)
    local other = tonumber(redis.call('HGET', lock.key, 'r' .. above) or 0)
    if other <= ticket then
      break
    end
    redis.call('HSET', lock.key, 'r' .. at, other)
    at = above
  end
  redis.call('HSET', lock.key, 'r' .. at, ticket)
end

local function drop_first_returned(lock)
  local count, at = lock.returned - 1, 1
  local last = tonumber(redis.call('HGET', lock.key, 'r' .. lock.returned) or 0)
  redis.call('HDEL', lock.key, 'r' .. lock.returned)
  lock.changed, lock.returned = true, count
  if count == 0 then
    return
  end
  while at * 2 <= count do
    local below = at * 2
    local pair = redis.call('HMGET', lock.key, 'r' .. below, 'r' .. math.min(below + 1, count))
    local left, right = tonumber(pair[1] or 0), tonumber(pair[2] or 0)
    if right < left then
      below, left = below + 1, right
    end
    if last <= left then
      break
    end
    redis.call('HSET', lock.key, 'r' .. at, left)
    at = below
  end
  redis.call('HSET', lock.key, 'r' .. at, last)
end

-- Sets a waiter aside that no connection hears for. The client may be gone, or only its connection
-- for wake-ups; until it asks, others are served.
local function park(lock, waiter)
  go_on_without_memory(lock)
  waiter.parked, lock.parked = true, lock.parked + 1
  write_waiter(lock, waiter)
  if waiter.ticket == lock.head then
    lock.head = lock.head + 1
  end
end

-- A waiter asks: if it was parked, it stands in its place again.
local function unpark(lock, entry)
  local waiter = lock.parked > 0 and waiter_of(lock, entry)
  if waiter and waiter.parked then
    go_on_without_memory(lock)
    waiter.parked, lock.parked = false, lock.parked - 1
    write_waiter(lock, waiter)
    if waiter.ticket < lock.head then
      put_back(lock, waiter.ticket)
    end
  end
end

-- The first parked waiter from a ticket on, before another.
local function parked_from(lock, ticket, before)
  for _ = 1, AT_MOST do
    if ticket >= before then
      return nil
    end
    local waiter = waiter_at(lock, ticket)
    if waiter and waiter.parked then
      return waiter
    elseif not waiter and ticket == lock.first then
      lock.first, lock.changed = ticket + 1, true
    end
    ticket = ticket + 1
  end
end

-- Forgets parked waiters that have not asked again; those that came first are dead first.
local function purge_parked(lock)
  local ticket = lock.first
  for dead = 1, lock.parked > 0 and PARKED_AT_MOST or 0 do
    local waiter = parked_from(lock, ticket, lock.head)
    if not waiter or waiter.alive > lock.time then
      return
    end
    dequeue(lock, waiter)
    ticket = waiter.ticket + 1
    lock.more = lock.more or dead == PARKED_AT_MOST
  end
end

-- Whether a parked waiter with an earlier ticket comes first: only in a lock that became free while
-- no waiter could be reached, and for a moment.
local function is_reserved(lock, ticket)
  return lock.parked > 0 and lock.reserved > lock.time
    and (not ticket or parked_from(lock, lock.first, ticket) ~= nil)
end

-- Whether a connection listens for a client. Asked, because a message is also counted for those who
-- listen to patterns; a user without the right to ask relies on that count.
local hearing = {}
local function hears(client)
  if hearing[client] == nil then
    local found = redis.pcall('PUBSUB', 'NUMSUB', CHANNEL .. client)
    hearing[client] = found.err ~= nil or found[2] > 0
  end
  return hearing[client]
end

-- Tells a waiter of its grant; how many heard it. None: its client is gone, or hears nothing now.
local function tell(lock, waiter, fence, fences, lease)
  local words = { 'granted', waiter.entry, plain(fence), fences, lease, plain(now), lock.key }
  return redis.call('PUBLISH', CHANNEL .. waiter.client, table.concat(words, ' '))
end

-- The other entries of an owner that just got the lock enter with it: left in the queue, they
-- would wait for themselves.
local function bring_along(lock, holder, lease)
  for number in string.gmatch(waiting_of(lock, holder.owner), '[^,]+') do
    local waiter = waiter_of(lock, holder.owner .. ':' .. number)
    if waiter then
      dequeue(lock, waiter)
      holder.entries = with(holder.entries, number)
      tell(lock, waiter, holder.fence, holder.fences, lease)
    end
  end
end

-- Takes the first waiter out of the queue, writes it in as the holder, and tells it alone. One that
-- no connection hears for is parked instead.
local function hand_over(lock, waiter)
  if lock.letter == 'l' then
    -- Through an open latch nothing is held, so there is no fence.
    dequeue(lock, waiter)
    tell(lock, waiter, 0, 1, waiter.lease)
    return
  end
  -- A party of a barrier that is cut off is counted all the same: it finds the opening when it asks.
  -- One that asks in this very call learns of it by the answer.
  local must_hear = lock.letter ~= 'b' and lock.asker ~= waiter.entry
  if must_hear and not hears(waiter.client) then
    lock.has_parked = true
    return park(lock, waiter)
  end
  -- Who misses the opening of a barrier must find it when asking again, which takes a heartbeat.
  local lease = lock.letter == 'b' and waiter.lease or math.min(waiter.claim, waiter.lease)
  -- Something is written before the waiter is told: a server may refuse to write.
  dequeue(lock, waiter)
  local fence, fences = next_fence(lock, waiter.fences)
  if tell(lock, waiter, fence, fences, lease) == 0 and must_hear then
    hearing[waiter.client], lock.has_parked = false, true
    remember(lock, waiter)
    return park(lock, waiter)
  end
  local holder = {
    owner = waiter.owner, ends = lock.time + lease * 1000, client = waiter.client, fence = fence,
    entries = waiter.number, permits = waiter.permits, fences = fences, note = waiter.note,
  }
  if waiter.number ~= '0' then
    bring_along(lock, holder, lease)
  end
  save(lock, holder)
end

-- The first waiter that is not parked: nil if there is none, false if another look is needed.
local function head(lock)
  if lock.returned > 0 then
    local ticket = tonumber(redis.call('HGET', lock.key, 'r1') or 0)
    local waiter = waiter_at(lock, ticket)
    if waiter and not waiter.parked then
      return waiter
    end
    drop_first_returned(lock)
    return false
  elseif lock.head > lock.ticket then
    if lock.waiting ~= lock.parked then
      -- Somebody else has emptied the queue.
      lock.changed, lock.waiting = true, lock.parked
    end
    return nil
  end
  local waiter = waiter_at(lock, lock.head)
  if waiter and not waiter.parked then
    return waiter
  elseif waiter == false then
    -- It is not what Tenure writes: it cannot be served, and must not be in the way.
    redis.call('HDEL', lock.key, 'q' .. lock.head)
    lock.waiting = lock.waiting - 1
  end
  lock.changed, lock.head = true, lock.head + 1
  return false
end

-- The first that is alive; the dead before it go.
local function live_head(lock)
  for _ = 1, AT_MOST do
    local waiter
    if lock.waiting > 0 then
      waiter = head(lock)
    end
    if waiter == nil or waiter and waiter.alive > lock.time then
      return waiter
    elseif waiter then
      dequeue(lock, waiter)
    end
  end
  lock.more = true
end

-- Gives what is free to those who wait, in order (I10). Done as soon as the first of them must wait;
-- for a mutex that only one can get, as soon as one has got it.
local function serve(lock, one)
  for _ = 1, AT_MOST do
    if lock.waiting == 0 or one and lock.holder then
      return
    end
    local waiter = head(lock)
    if waiter == nil then
      return
    elseif waiter and waiter.alive <= lock.time then
      dequeue(lock, waiter)
    elseif waiter and fits(lock, waiter.owner, waiter.permits)
      and not is_reserved(lock, waiter.ticket) then
      hand_over(lock, waiter)
    elseif waiter and (lock.single or lock.letter == 'b' or lock.letter == 'l'
      or lock.asker == waiter.entry or hears(waiter.client)) then
      return
    elseif waiter then
      -- It does not fit, and may be dead: those behind it, who may fit, do not wait for it.
      park(lock, waiter)
    end
  end
  lock.more = true
end

local function serve_and_reserve(lock, one)
  lock.has_parked = false
  serve(lock, one)
  -- All who wait were found deaf when it was their turn, in this very call: the first of them who asks is
  -- to be the first.
  if lock.has_parked and lock.waiting > 0 and lock.waiting == lock.parked then
    lock.reserved = lock.time + RESERVED
  end
end

-- Brings the lock to the present: ended leases go, and what is free goes to those who wait.
local function settle(lock)
  expire(lock)
  purge_parked(lock)
  if lock.waiting > 0 then
    serve_and_reserve(lock, false)
  end
end

-- The first waiter, if it must let a parked one go first for a moment, is told to ask: it learns for
-- how long.
local function announce(lock)
  local waiter = lock.parked > 0 and lock.parked < lock.waiting and live_head(lock)
  if waiter and is_reserved(lock, waiter.ticket) then
    redis.call('PUBLISH', CHANNEL .. waiter.client, 'sooner ' .. waiter.entry .. ' ' .. lock.key)
  end
end

-- After a holder has left. A mutex needs no look at the waiter behind the next holder: there is no
-- room for it.
local function pass_on(lock)
  if not lock.single then
    settle(lock)
  elseif lock.waiting > 0 then
    serve_and_reserve(lock, true)
  end
  announce(lock)
end

-- Ends one entry of a holder, or, if it is the only one, gives back all permits but some: how many
-- entries remain, or nil if there was none.
local function leave(lock, owner, number, linger, keep)
  local holder = find(lock, owner)
  if not holder or not has(holder.entries, number) or holder.entries == '' then
    return nil
  end
  go_on_without_memory(lock)
  if keep > 0 then
    local _, count = without(holder.entries, '')
    if count == 1 and keep < holder.permits then
      lock.used = lock.used - holder.permits + keep
      holder.permits = keep
      save(lock, holder)
    end
    settle(lock)
    return count
  end
  local entries, remaining = without(holder.entries, number)
  holder.entries = entries
  if remaining > 0 then
    save(lock, holder)
  elseif linger > 0 then
    local was = holder.ends
    holder.ends = lock.time + linger * 1000
    save(lock, holder)
    -- The next in line, who knows of a later end, is told to ask again.
    -- A latch and a barrier open when somebody comes, not when somebody goes.
    local waiter = holder.ends < was and live_head(lock)
    if waiter and lock.letter ~= 'l' and lock.letter ~= 'b' then
      redis.call('PUBLISH', CHANNEL .. waiter.client, 'sooner ' .. waiter.entry .. ' ' .. lock.key)
    end
  else
    remove(lock, owner)
    pass_on(lock)
  end
  return remaining
end

-- What went wrong, as a line of an answer. A lock's own trouble is not that of others in its call.
local function failure(wrong)
  local text = type(wrong) == 'table' and wrong.err or tostring(wrong)
  return '-' .. string.gsub(text, '[\r\n]', ' ')
end

-- Performs an operation on the lock of KEYS[i], from opening to closing, and notes its result: with a
-- plus sign behind it, if there is more to settle than one call may do. Its text, if known, as in
-- `open`.
local function on_lock(results, i, text, operation)
  local lock, wrong = open(KEYS[i], text)
  if not lock then
    results[i + 1] = failure(wrong)
    return
  end
  local is_done, result = pcall(function()
    local result = operation(lock)
    close(lock)
    return result
  end)
  results[i + 1] = is_done and result .. (lock.more and '+' or '') or failure(result)
end

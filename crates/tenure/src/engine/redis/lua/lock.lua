-- What a lock is, in its keys: included by every operation, after its plain case.
--
-- All keys of a lock are made from the one that arrives through KEYS, and share its hash tag.
-- Times are microseconds of the server's clock; texts of others are percent-encoded.
--
-- lock    hash  f last fence
--               o the holder of a mutex: "owner since lease", with 32, 16 and 8 digits: since when
--                 its lease runs, and its length in ms
--               c its client
--               m "extra note": its fences beyond the first, and its note (absent: neither)
--               n numbers of its entries (absent: only 0; empty: released, but lingering)
--               s "kind-and-limit waiting ticket used last shift parked reserved": how many wait,
--                 the last ticket, the permits taken of all but a mutex, the lock's time when this
--                 was written and how far it was ahead of the clock; how many waiters are parked,
--                 and until when a free lock is reserved for them (absent: a mutex for which no
--                 client waits)
-- lock:h  hash  owner -> its holder, for all but a mutex    lock:d  zset  owner by end of lease
-- lock:q  zset  entry by ticket, 2^52 more if parked        lock:w  hash  entry -> its waiter,
--                                                             and @owner -> numbers that wait
-- lock:x  string  the record of the last forced release
--
-- Values of up to 64 bytes let the server keep the hash in one small piece of memory.
--
-- The lock's time is the server's clock, but it never goes back: when the clock is set back, the
-- lock's time stands still for a moment and then goes on at the same distance. So leases and
-- heartbeats that have begun still end, no later than their own length after the step (A2). Stamps
-- and fences are the clock's.

-- How long a fence outlives its lock, at least, in ms. It guards against a clock set back by less
-- than that; names are often used once, and a longer time would fill the server.
local RETENTION = 3600 * 1000
-- The channel on which a client hears of its grants, with its id behind it.
local CHANNEL = 'tenure:wake:'
-- Longer than any lease or heartbeat: what crashed clients leave behind ends by itself.
local LONG = 25 * 3600 * 1000
-- The keys of a lock in use are told so once in this time, in µs.
local TOLD_EVERY = 600 * 1000000
-- One call serves, parks or purges at most this many waiters, and ends at most this many leases: a
-- few milliseconds at worst. A plus sign behind an answer asks its client to go on.
local AT_MOST = 1000
-- Of parked waiters that are dead, a call forgets so many.
local PARKED_AT_MOST = 250
-- A waiter that no connection hears for is parked: it keeps its ticket, and takes its place again
-- when it asks (I10). Its score in the queue is larger by this much.
local PARKED = 4503599627370496
-- Fences are below 2^53, with room for those that follow.
local LARGEST_FENCE = 9007199254740991 - 1000000
-- No clock is wrong by a hundred years, in µs. What is stored and says so was not written by Tenure; taken
-- for true, it would end every lease.
local CENTURY = 100 * 365 * 86400 * 1000000
-- A lock that is free while all its waiters are parked is reserved for so long, in µs: a client
-- whose wake-ups were interrupted connects again and asks within this time, and is served in order.
local RESERVED = 100 * 1000

local function plain(number)
  return string.format('%.0f', number)
end

-- The error of a sibling that somebody else uses. Asked before the first write: an error midway
-- would not be undone.
local types = {}
local function is_missing(key, suffix)
  return types[key .. suffix] == 'none'
end

local function misused(key, suffix, right)
  local found = redis.call('TYPE', key .. suffix).ok
  types[key .. suffix] = found
  if found ~= 'none' and found ~= right then
    return { err = 'WRONGTYPE ' .. key .. suffix .. ' holds a ' .. found }
  end
end

-- The error of what Tenure did not write. Raised before the first write of an operation, unless it
-- is about one waiter or holder of many.
local function damaged(key, what)
  return { err = 'DAMAGED the ' .. what .. ' of ' .. key .. ' is not what Tenure writes: look at the '
    .. 'keys that begin so, and delete all of them if no client needs the lock' }
end

local function read_holder(fence, text, client, entries, more)
  local owner, since, lease = string.match(text, '^(%x+) (%d+) (%d+)$')
  local extra, note = string.match(more or '0 ', '^(%d+) (%S*)$')
  if #text ~= 58 or not lease or #owner ~= 32 or not extra or not client or since - now > CENTURY
    or not string.match(entries or '0', '^[%x,]*$') then
    return nil
  end
  return {
    owner = owner, ends = since + lease * 1000, since = tonumber(since), client = client,
    entries = entries or '0', permits = 1, fence = fence - extra, fences = extra + 1, note = note,
  }
end

local function set_kind(lock, kind)
  lock.kind, lock.letter, lock.limit = kind, string.sub(kind, 1, 1), tonumber(string.sub(kind, 2))
  lock.single = lock.letter == 'm'
end

-- The kind, the queue and the lock's time, of a lock that is more than a plain mutex.
local function read_state(lock, text)
  local kind, waiting, ticket, used, last, shift, parked, reserved =
    string.match(text, '^([mrslb]%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  if not kind or last - now > CENTURY or tonumber(shift) > CENTURY then
    return false
  end
  set_kind(lock, kind)
  lock.waiting, lock.ticket, lock.used = tonumber(waiting), tonumber(ticket), tonumber(used)
  lock.last, lock.shift = tonumber(last), tonumber(shift)
  lock.parked, lock.reserved = tonumber(parked), tonumber(reserved)
  return true
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

-- The lock as it is, or an error if what is in its place is not Tenure's. What it has of siblings is
-- checked, and what the caller says it will need.
local function open(key, needs_queue, needs_many)
  local was = redis.pcall('HMGET', key, 'f', 'o', 'n', 's', 'c', 'm')
  if was.err then
    return nil, was
  end
  if was[1] and not (string.match(was[1], '^%d+$') and tonumber(was[1]) < LARGEST_FENCE) then
    return nil, damaged(key, 'fence')
  end
  local lock = {
    key = key, was = was, fence = tonumber(was[1]) or 0, kind = 'm1', letter = 'm', limit = 1,
    single = true, waiting = 0, ticket = 0, used = 0, shift = 0, parked = 0, reserved = 0,
  }
  if was[4] and not read_state(lock, was[4]) then
    return nil, damaged(key, 'state')
  end
  if was[2] then
    lock.holder = read_holder(lock.fence, was[2], was[5], was[3], was[6])
    if not lock.holder then
      return nil, damaged(key, 'holder')
    end
  end
  set_time(lock)
  local wrong
  if needs_queue or lock.waiting > 0 then
    wrong = misused(key, ':q', 'zset') or misused(key, ':w', 'hash')
  end
  if needs_many or not lock.single then
    wrong = wrong or misused(key, ':h', 'hash') or misused(key, ':d', 'zset')
  end
  if wrong then
    return nil, wrong
  end
  if lock.used > 0 and (is_missing(key, ':h') or is_missing(key, ':d')) then
    -- Deleted or evicted: who held it is not known any more, and they find out when they renew.
    lock.used, lock.changed = 0, true
  end
  return lock
end

local function is_idle(lock)
  return not lock.holder and lock.used == 0 and lock.waiting == 0
end

-- Sets a field that has become another, or notes that it is to go.
local function write(set, gone, field, was, is)
  if is and is ~= was then
    set[#set + 1] = field
    set[#set + 1] = is
  elseif was and not is then
    gone[#gone + 1] = field
  end
end

-- A server that is out of memory refuses commands that may need more, until a script has written
-- something. What only keeps or ends something goes on there: it begins with a write that frees.
local function go_on_without_memory(lock)
  redis.call('HDEL', lock.key, '')
end

-- Writes back what has changed, all fields at once, and how long the key is to be kept: longer by as
-- much as its fence is ahead of the clock, which would otherwise give a smaller one (I4).
local function close(lock)
  if not lock.changed then
    return
  end
  local key, holder, was, set, gone = lock.key, lock.holder, lock.was, {}, {}
  local is_plain = lock.waiting == 0 and (lock.single or lock.used == 0)
  local lease = holder and math.max(math.ceil((holder.ends - lock.time) / 1000), 0)
  local ahead = math.max(math.ceil((lock.fence - now) / 1000), 0)
  write(set, gone, 'f', was[1], lock.fence > 0 and plain(lock.fence))
  -- Leases are whole milliseconds from some moment: any end can be told as one. A plain mutex is
  -- written by the clock.
  write(set, gone, 'o', was[2], holder and string.format('%s %016.0f %08d', holder.owner,
    holder.ends - (is_plain and lock.shift or 0) - lease * 1000, lease))
  write(set, gone, 'c', was[5], holder and holder.client)
  write(set, gone, 'm', was[6], holder and (holder.fences > 1 or holder.note ~= '')
    and holder.fences - 1 .. ' ' .. holder.note)
  write(set, gone, 'n', was[3], holder and holder.entries ~= '0' and holder.entries)
  write(set, gone, 's', was[4], not is_plain and table.concat({
    lock.kind, lock.waiting, lock.waiting > 0 and lock.ticket or 0, lock.used, plain(lock.time),
    plain(lock.shift), lock.parked, plain(lock.reserved),
  }, ' '))
  if #gone > 0 then
    redis.call('HDEL', key, unpack(gone))
  end
  if #set > 0 then
    redis.call('HSET', key, unpack(set))
  end
  if is_plain then
    redis.call('PEXPIRE', key, math.max((lease or 0) + RETENTION, 2 * RETENTION) + ahead)
  elseif math.floor((lock.last or 0) / TOLD_EVERY) ~= math.floor(lock.time / TOLD_EVERY) then
    redis.call('PEXPIRE', key, LONG + ahead)
    for _, sibling in ipairs({ ':q', ':w', ':h', ':d' }) do
      redis.call('PEXPIRE', key .. sibling, LONG)
    end
  end
end

-- Two siblings that have just come to be: what crashed clients leave behind ends by itself.
local function begin(lock, one, other)
  redis.call('PEXPIRE', lock.key .. one, LONG)
  redis.call('PEXPIRE', lock.key .. other, LONG)
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

-- Holders ---------------------------------------------------------------------------------------

local function unpack_holder(lock, owner, text)
  local ends, permits, fence, fences, client, entries, note =
    string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (%S*)$')
  if not ends then
    error(damaged(lock.key .. ':h', 'holder ' .. owner))
  end
  if entries == '-' then
    entries = ''
  end
  return {
    owner = owner, ends = tonumber(ends), permits = tonumber(permits), fence = tonumber(fence),
    fences = tonumber(fences), client = client, entries = entries, note = note,
  }
end

local function find(lock, owner)
  if lock.single then
    return lock.holder and lock.holder.owner == owner and lock.holder or nil
  end
  local text = redis.call('HGET', lock.key .. ':h', owner)
  return text and unpack_holder(lock, owner, text) or nil
end

-- The single holder of a mutex is written when the lock is closed.
local function save(lock, holder)
  lock.changed = true
  if lock.single then
    lock.holder = holder
    return
  end
  local entries = holder.entries == '' and '-' or holder.entries
  local text = table.concat({
    plain(holder.ends), holder.permits, plain(holder.fence), holder.fences, holder.client, entries,
    holder.note,
  }, ' ')
  if lock.used == 0 then
    -- What a lock that was deleted has left behind would be counted as holders of this one.
    redis.call('DEL', lock.key .. ':h', lock.key .. ':d')
  end
  if redis.call('HSET', lock.key .. ':h', holder.owner, text) == 1 then
    lock.used = lock.used + holder.permits
  end
  redis.call('ZADD', lock.key .. ':d', holder.ends, holder.owner)
  if lock.used == holder.permits then
    begin(lock, ':h', ':d')
  end
end

local function remove(lock, owner)
  lock.changed = true
  if lock.single then
    lock.holder = nil
    return
  end
  local holder = find(lock, owner)
  redis.call('HDEL', lock.key .. ':h', owner)
  redis.call('ZREM', lock.key .. ':d', owner)
  lock.used = lock.used - (holder and holder.permits or 0)
end

-- Those whose leases end first, so many at most.
local function owners(lock, most)
  if lock.single then
    return lock.holder and { lock.holder.owner } or {}
  end
  return redis.call('ZRANGE', lock.key .. ':d', 0, most - 1)
end

local function first_end(lock)
  if lock.single then
    return lock.holder and lock.holder.ends
  end
  return tonumber(redis.call('ZRANGE', lock.key .. ':d', 0, 0, 'WITHSCORES')[2])
end

local function expire(lock)
  if lock.single then
    if lock.holder and lock.holder.ends <= lock.time then
      remove(lock, lock.holder.owner)
    end
    return
  end
  local ended = redis.call(
    'ZRANGEBYSCORE', lock.key .. ':d', '-inf', lock.time, 'LIMIT', 0, AT_MOST)
  if #ended == 0 then
    return
  end
  lock.changed, lock.more = true, lock.more or #ended == AT_MOST
  for _, text in ipairs(redis.call('HMGET', lock.key .. ':h', unpack(ended))) do
    -- Of a record that is gone or not ours, the permits are unknown: they come back with the key.
    lock.used = lock.used - (text and tonumber(string.match(text, '^%d+ (%d+) ')) or 0)
  end
  redis.call('HDEL', lock.key .. ':h', unpack(ended))
  redis.call('ZREM', lock.key .. ':d', unpack(ended))
  if lock.used < 0 then
    error(damaged(lock.key, 'state'))
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

local function waiter_of(lock, entry)
  -- The type of the key is checked only where somebody waits.
  if lock.waiting == 0 then
    return nil
  end
  local text = redis.call('HGET', lock.key .. ':w', entry)
  if not text then
    return nil
  end
  local alive, permits, lease, claim, fences, since, client, note =
    string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S*)$')
  local owner, number = string.match(entry, '^(%x+):(%x+)$')
  if not alive or not owner then
    return nil
  end
  return {
    entry = entry, owner = owner, number = number, alive = tonumber(alive),
    permits = tonumber(permits), lease = tonumber(lease), claim = tonumber(claim),
    fences = tonumber(fences), since = since, client = client, note = note,
  }
end

local function write_waiter(lock, waiter)
  local text = table.concat({
    plain(waiter.alive), waiter.permits, waiter.lease, waiter.claim, waiter.fences, waiter.since,
    waiter.client, waiter.note,
  }, ' ')
  redis.call('HSET', lock.key .. ':w', waiter.entry, text)
end

-- The entries of an owner that wait; only re-entrant owners have more than one.
local function note_waiting(lock, waiter, list)
  if list == '' then
    redis.call('HDEL', lock.key .. ':w', '@' .. waiter.owner)
  else
    redis.call('HSET', lock.key .. ':w', '@' .. waiter.owner, list)
  end
end

local function waiting_of(lock, owner)
  return redis.call('HGET', lock.key .. ':w', '@' .. owner) or ''
end

-- Writes down a waiter that is in the queue.
local function remember(lock, waiter)
  write_waiter(lock, waiter)
  if waiter.number ~= '0' then
    note_waiting(lock, waiter, with(waiting_of(lock, waiter.owner), waiter.number))
  end
end

local function enqueue(lock, waiter)
  lock.changed = true
  if lock.waiting == 0 then
    redis.call('DEL', lock.key .. ':q', lock.key .. ':w')
  end
  lock.waiting = lock.waiting + 1
  lock.ticket = lock.ticket + 1
  redis.call('ZADD', lock.key .. ':q', lock.ticket, waiter.entry)
  remember(lock, waiter)
  if lock.waiting == 1 then
    begin(lock, ':q', ':w')
  end
end

-- Forgets a waiter that is out of the queue, or about to be.
local function forget(lock, waiter)
  lock.changed = true
  redis.call('HDEL', lock.key .. ':w', waiter.entry)
  if waiter.number ~= '0' then
    note_waiting(lock, waiter, (without(waiting_of(lock, waiter.owner), waiter.number)))
  end
end

-- The place of a parked waiter among the parked; nil for one that is not parked.
local function parked_place(lock, entry)
  local score = lock.parked > 0 and tonumber(redis.call('ZSCORE', lock.key .. ':q', entry) or 0) or 0
  return score >= PARKED and score or nil
end

local function leave_queue(lock, waiter)
  if parked_place(lock, waiter.entry) then
    lock.parked = lock.parked - 1
  end
  lock.waiting = lock.waiting - redis.call('ZREM', lock.key .. ':q', waiter.entry)
end

local function dequeue(lock, waiter)
  leave_queue(lock, waiter)
  forget(lock, waiter)
end

-- Sets a waiter aside that no connection hears for. The client may be gone, or only its connection
-- for wake-ups; until it asks, others are served.
local function park(lock, waiter)
  go_on_without_memory(lock)
  lock.changed, lock.parked = true, lock.parked + 1
  redis.call('ZADD', lock.key .. ':q', 'INCR', PARKED, waiter.entry)
end

-- A waiter asks: if it was parked, it stands in its place again.
local function unpark(lock, entry)
  local place = parked_place(lock, entry)
  if place then
    go_on_without_memory(lock)
    lock.changed, lock.parked = true, lock.parked - 1
    redis.call('ZADD', lock.key .. ':q', place - PARKED, entry)
  end
end

-- Forgets parked waiters that have not asked again; those that came first are dead first.
local function purge_parked(lock)
  if lock.parked == 0 then
    return
  end
  local first = redis.call(
    'ZRANGEBYSCORE', lock.key .. ':q', PARKED, '+inf', 'LIMIT', 0, PARKED_AT_MOST)
  local dead = 0
  for _, entry in ipairs(first) do
    local waiter = waiter_of(lock, entry)
    if not waiter then
      lock.changed, lock.parked, lock.waiting = true, lock.parked - 1, lock.waiting - 1
      redis.call('ZREM', lock.key .. ':q', entry)
    elseif waiter.alive <= lock.time then
      dequeue(lock, waiter)
    else
      return
    end
    dead = dead + 1
  end
  lock.more = lock.more or dead == PARKED_AT_MOST
end

-- Whether a parked waiter with an earlier ticket comes first: only in a lock that became free while
-- no waiter could be reached, and for a moment.
local function is_reserved(lock, entry)
  if lock.parked == 0 or lock.reserved <= lock.time then
    return false
  end
  local first = redis.call(
    'ZRANGEBYSCORE', lock.key .. ':q', PARKED, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  local ticket = entry and tonumber(redis.call('ZSCORE', lock.key .. ':q', entry) or 0) or PARKED
  return first[2] and tonumber(first[2]) - PARKED < ticket
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
  forget(lock, waiter)
  local fence, fences = next_fence(lock, waiter.fences)
  if tell(lock, waiter, fence, fences, lease) == 0 and must_hear then
    hearing[waiter.client], lock.has_parked = false, true
    remember(lock, waiter)
    return park(lock, waiter)
  end
  leave_queue(lock, waiter)
  local holder = {
    owner = waiter.owner, ends = lock.time + lease * 1000, client = waiter.client, fence = fence,
    entries = waiter.number, permits = waiter.permits, fences = fences, note = waiter.note,
  }
  if waiter.number ~= '0' then
    bring_along(lock, holder, lease)
  end
  save(lock, holder)
end

-- The first in the queue that is not parked. One that somebody else has emptied is empty.
local function head(lock)
  local first = redis.call('ZRANGE', lock.key .. ':q', 0, 0, 'WITHSCORES')
  local entry = first[1]
  if not entry then
    redis.call('DEL', lock.key .. ':q', lock.key .. ':w')
    lock.changed, lock.waiting, lock.parked = true, 0, 0
    return nil
  elseif tonumber(first[2]) >= PARKED then
    return nil
  end
  local waiter = waiter_of(lock, entry)
  if waiter then
    return waiter
  end
  -- Its record is gone, or is not what Tenure writes: it cannot be served, and must not be in the way.
  redis.call('ZREM', lock.key .. ':q', entry)
  redis.call('HDEL', lock.key .. ':w', entry)
  lock.changed, lock.waiting = true, lock.waiting - 1
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
    elseif waiter and fits(lock, waiter.owner, waiter.permits) and not is_reserved(lock, waiter.entry) then
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
  if waiter and is_reserved(lock, waiter.entry) then
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
-- plus sign behind it, if there is more to settle than one call may do.
local function on_lock(results, i, operation, needs_queue, needs_many)
  local lock, wrong = open(KEYS[i], needs_queue, needs_many)
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

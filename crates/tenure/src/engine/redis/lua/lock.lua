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
--               s "kind-and-limit waiting ticket used kept": how many wait, the last ticket, the
--                 permits taken of all but a mutex, and in which ten minutes the keys were last
--                 told to live on (absent: a mutex for which nobody waits)
-- lock:h  hash  owner -> its holder, for all but a mutex    lock:d  zset  owner by end of lease
-- lock:q  zset  entry by ticket                             lock:w  hash  entry -> its waiter,
--                                                             and @owner -> numbers that wait
-- lock:x  string  the record of the last forced release
--
-- Values of up to 64 bytes let the server keep the hash in one small piece of memory.

-- How long a fence outlives its lock, at least, in ms. It guards against a clock set back by less
-- than that; names are often used once, and a longer time would fill the server.
local RETENTION = 3600 * 1000
-- The channel on which a client hears of its grants, with its id behind it.
local CHANNEL = 'tenure:wake:'
-- Longer than any lease or heartbeat: what crashed clients leave behind ends by itself.
local LONG = 25 * 3600 * 1000
-- The keys of a lock in use are told so once in this time, in µs.
local TOLD_EVERY = 600 * 1000000
-- One call serves or purges at most this many waiters: some milliseconds at worst. The others find
-- out when they ask again.
local SERVED_AT_MOST = 1000

local function plain(number)
  return string.format('%.0f', number)
end

-- The error of a sibling that somebody else uses. Asked before the first write: an error midway
-- would not be undone.
local function misused(key, suffix, right)
  local found = redis.call('TYPE', key .. suffix).ok
  if found ~= 'none' and found ~= right then
    return { err = 'WRONGTYPE ' .. key .. suffix .. ' holds a ' .. found }
  end
end

local function read_holder(fence, text, client, entries, more)
  local extra, note = string.match(more or '0 ', '^(%d+) (%S*)$')
  return {
    owner = string.sub(text, 1, 32), ends = string.sub(text, 34, 49) + string.sub(text, 51) * 1000,
    client = client, entries = entries or '0', permits = 1, fence = fence - extra,
    fences = extra + 1, note = note,
  }
end

local function set_kind(lock, kind)
  lock.kind, lock.letter, lock.limit = kind, string.sub(kind, 1, 1), tonumber(string.sub(kind, 2))
  lock.single = lock.letter == 'm'
end

-- The lock as it is, or the server's error if somebody else's key is in its place. What it has of
-- siblings is checked, and what the caller says it will need.
local function open(key, needs_queue, needs_many)
  local was = redis.pcall('HMGET', key, 'f', 'o', 'n', 's', 'c', 'm')
  if was.err then
    return nil, was
  end
  local lock = {
    key = key, was = was, fence = tonumber(was[1]) or 0, kind = 'm1', letter = 'm', limit = 1,
    single = true, waiting = 0, ticket = 0, used = 0,
  }
  if was[4] then
    local kind, waiting, ticket, used, kept =
      string.match(was[4], '^(%a%d+) (%d+) (%d+) (%d+) (%d+)$')
    set_kind(lock, kind)
    lock.waiting, lock.ticket, lock.used = tonumber(waiting), tonumber(ticket), tonumber(used)
    lock.kept = tonumber(kept)
  end
  if was[2] then
    lock.holder = read_holder(lock.fence, was[2], was[5], was[3], was[6])
  end
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

-- Writes back what has changed, all fields at once, and how long the key is to be kept.
local function close(lock)
  if not lock.changed then
    return
  end
  local key, holder, was, set, gone = lock.key, lock.holder, lock.was, {}, {}
  local is_plain = lock.waiting == 0 and (lock.single or lock.used == 0)
  local kept = math.floor(now / TOLD_EVERY)
  local lease = holder and math.ceil((holder.ends - now) / 1000)
  write(set, gone, 'f', was[1], lock.fence > 0 and plain(lock.fence))
  -- Leases are whole milliseconds from some moment: any end can be told as one.
  write(set, gone, 'o', was[2], holder and string.format(
    '%s %016.0f %08d', holder.owner, holder.ends - lease * 1000, lease))
  write(set, gone, 'c', was[5], holder and holder.client)
  write(set, gone, 'm', was[6], holder and (holder.fences > 1 or holder.note ~= '')
    and holder.fences - 1 .. ' ' .. holder.note)
  write(set, gone, 'n', was[3], holder and holder.entries ~= '0' and holder.entries)
  write(set, gone, 's', was[4], not is_plain and table.concat(
    { lock.kind, lock.waiting, lock.waiting > 0 and lock.ticket or 0, lock.used, kept }, ' '))
  if #gone > 0 then
    redis.call('HDEL', key, unpack(gone))
  end
  if #set > 0 then
    redis.call('HSET', key, unpack(set))
  end
  if is_plain then
    redis.call('PEXPIRE', key, math.max((lease or 0) + RETENTION, 2 * RETENTION))
  elseif lock.kept ~= kept then
    redis.call('PEXPIRE', key, LONG)
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

local function unpack_holder(owner, text)
  local ends, permits, fence, fences, client, entries, note =
    string.match(text, '^(%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (%S*)$')
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
  return text and unpack_holder(owner, text) or nil
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

local function owners(lock)
  if lock.single then
    return lock.holder and { lock.holder.owner } or {}
  end
  return redis.call('ZRANGE', lock.key .. ':d', 0, -1)
end

local function first_end(lock)
  if lock.single then
    return lock.holder and lock.holder.ends
  end
  return tonumber(redis.call('ZRANGE', lock.key .. ':d', 0, 0, 'WITHSCORES')[2])
end

local function expire(lock)
  if lock.single then
    if lock.holder and lock.holder.ends <= now then
      remove(lock, lock.holder.owner)
    end
    return
  end
  for _, owner in ipairs(redis.call('ZRANGEBYSCORE', lock.key .. ':d', '-inf', now)) do
    remove(lock, owner)
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

local function enqueue(lock, waiter)
  lock.changed = true
  lock.waiting = lock.waiting + 1
  lock.ticket = lock.ticket + 1
  redis.call('ZADD', lock.key .. ':q', lock.ticket, waiter.entry)
  write_waiter(lock, waiter)
  if waiter.number ~= '0' then
    note_waiting(lock, waiter, with(waiting_of(lock, waiter.owner), waiter.number))
  end
  if lock.waiting == 1 then
    begin(lock, ':q', ':w')
  end
end

-- Forgets a waiter that is out of the queue.
local function forget(lock, waiter)
  lock.changed = true
  redis.call('HDEL', lock.key .. ':w', waiter.entry)
  if waiter.number ~= '0' then
    note_waiting(lock, waiter, (without(waiting_of(lock, waiter.owner), waiter.number)))
  end
end

local function dequeue(lock, waiter)
  lock.waiting = lock.waiting - redis.call('ZREM', lock.key .. ':q', waiter.entry)
  forget(lock, waiter)
end

-- Tells a waiter of its grant; how many heard it. None: its client is gone.
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

-- Writes a waiter in as the holder, and tells it alone. One whose client is gone is passed over.
local function hand_over(lock, waiter)
  if lock.letter == 'l' then
    -- Through an open latch nothing is held, so there is no fence.
    tell(lock, waiter, 0, 1, waiter.lease)
    return
  end
  -- Who misses the opening of a barrier must find it when asking again, which takes a heartbeat.
  local lease = lock.letter == 'b' and waiter.lease or math.min(waiter.claim, waiter.lease)
  local fence, fences = next_fence(lock, waiter.fences)
  -- A party of a barrier that is cut off was counted all the same: it finds the opening when it asks.
  if tell(lock, waiter, fence, fences, lease) == 0 and lock.letter ~= 'b' then
    return
  end
  local holder = {
    owner = waiter.owner, ends = now + lease * 1000, client = waiter.client, fence = fence,
    entries = waiter.number, permits = waiter.permits, fences = fences, note = waiter.note,
  }
  if waiter.number ~= '0' then
    bring_along(lock, holder, lease)
  end
  save(lock, holder)
end

-- The first in the queue. One that somebody else has emptied is empty.
local function head(lock)
  local entry = redis.call('ZRANGE', lock.key .. ':q', 0, 0)[1]
  local waiter = entry and waiter_of(lock, entry)
  if not waiter then
    redis.call('DEL', lock.key .. ':q', lock.key .. ':w')
    lock.changed, lock.waiting = true, 0
  end
  return waiter
end

-- Brings the lock to the present: ended leases go, and what is free goes to those who wait (I10).
local function settle(lock)
  expire(lock)
  local served = 0
  while lock.waiting > 0 and served < SERVED_AT_MOST do
    local waiter = head(lock)
    served = served + 1
    if not waiter then
      return
    elseif waiter.alive <= now then
      dequeue(lock, waiter)
    elseif fits(lock, waiter.owner, waiter.permits) then
      dequeue(lock, waiter)
      hand_over(lock, waiter)
    else
      return
    end
  end
end

-- After the only holder has left: the first live waiter gets the lock. As settling does, without
-- looking at the waiter behind it, for whom there is no room.
local function pass_on(lock)
  if not lock.single then
    return settle(lock)
  end
  local served = 0
  while lock.waiting > 0 and not lock.holder and served < SERVED_AT_MOST do
    local waiter = head(lock)
    if waiter then
      dequeue(lock, waiter)
      served = served + 1
      if waiter.alive > now then
        hand_over(lock, waiter)
      end
    end
  end
end

-- Ends one entry of a holder, or, if it is the only one, gives back all permits but some: how many
-- entries remain, or nil if there was none.
local function leave(lock, owner, number, linger, keep)
  local holder = find(lock, owner)
  if not holder or not has(holder.entries, number) or holder.entries == '' then
    return nil
  end
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
    holder.ends = now + linger * 1000
    save(lock, holder)
    -- The next in line, who knows of a later end, is told to ask again.
    -- A latch and a barrier open when somebody comes, not when somebody goes.
    local waiter = holder.ends < was and lock.waiting > 0 and head(lock)
    if waiter and lock.letter ~= 'l' and lock.letter ~= 'b' then
      redis.call('PUBLISH', CHANNEL .. waiter.client, 'sooner ' .. waiter.entry .. ' ' .. lock.key)
    end
  else
    remove(lock, owner)
    pass_on(lock)
  end
  return remaining
end

-- Performs an operation on the lock of KEYS[i], from opening to closing, and notes its result.
local function on_lock(results, i, operation, needs_queue, needs_many)
  local lock, wrong = open(KEYS[i], needs_queue, needs_many)
  if lock then
    results[i + 1] = operation(lock)
    close(lock)
  else
    results[i + 1] = '-' .. wrong.err
  end
end

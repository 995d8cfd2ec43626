-- The holders of a lock, and the lists of their entries.

local function parse_holder(lock, owner, text)
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

local function format_holder(holder)
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
  return text and parse_holder(lock, owner, text) or nil
end

-- When to search for ended leases next. Among very many holders, one with a short lease would make every call search
-- all of them, so its end is noticed late then, by 20 ms for each thousand holders.
local function next_expiry_check(lock, ends)
  return lock.count > WORK_LIMIT and math.max(ends, lock.time + lock.count * EXPIRY_PAUSE) or ends
end

-- Writes a holder; the single holder of a mutex is written by `close`.
local function save(lock, holder)
  lock.changed = true
  if lock.single then
    lock.holder = holder
    return
  end
  lock.keep = math.max(lock.keep, holder.ends)
  if not holder.index and lock.letter == 'b' then
    -- An owner that passed a barrier before may pass it again, and keeps its number.
    local former = find(lock, holder.owner)
    holder.index = former and former.index
  end
  if holder.index then
    put(lock, lock.key, 'h' .. holder.owner, format_holder(holder))
  else
    make_hash(lock)
    lock.used, lock.count = lock.used + holder.permits, lock.count + 1
    holder.index = lock.count
    put(lock, lock.key, 'h' .. holder.owner, format_holder(holder), 'i' .. lock.count, holder.owner)
  end
  lock.bound = lock.count == 1 and holder.ends or math.min(lock.bound, next_expiry_check(lock, holder.ends))
  lock.least = math.min(lock.least, holder.ends)
end

-- Removes the holder with a number; the last holder gets that number.
local function remove_at(lock, owner, index, permits)
  local last = lock.count
  if index ~= last then
    local mover = redis.call('HGET', lock.key, 'i' .. last)
    local text = mover and redis.call('HGET', lock.key, 'h' .. mover)
    if text then
      local moved = parse_holder(lock, mover, text)
      moved.index = index
      put(lock, lock.key, 'h' .. mover, format_holder(moved), 'i' .. index, mover)
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
    remove_at(lock, owner, holder.index, holder.permits)
  end
end

-- The holders with these numbers: their owners and their records.
local function holders_between(lock, from, to)
  if from > to then
    return {}, {}
  end
  local owners, names = redis.call('HMGET', lock.key, unpack(numbered('i', from, to))), {}
  for at, owner in ipairs(owners) do
    names[at] = 'h' .. (owner or '')
  end
  return owners, redis.call('HMGET', lock.key, unpack(names))
end

-- Owners of the lock, `most` at most.
local function owners(lock, most)
  if lock.single then
    return lock.holder and { lock.holder.owner } or {}
  end
  local list = {}
  for _, owner in ipairs((holders_between(lock, 1, math.min(most, lock.count)))) do
    list[#list + 1] = owner or nil
  end
  return list
end

-- When the first lease ends; with many holders, a lower bound of it.
local function first_end(lock)
  if lock.single then
    return lock.holder and lock.holder.ends
  elseif lock.count == 0 or lock.count > EXACT then
    return lock.count > 0 and lock.bound or nil
  end
  local list, texts = holders_between(lock, 1, lock.count)
  local first = NEVER
  for at, owner in ipairs(list) do
    first = math.min(first, texts[at] and parse_holder(lock, owner, texts[at]).ends or NEVER)
  end
  return first
end

-- Ends leases. When the bound says that a lease may have ended, the holders are checked from the last to the
-- first, as many in each call as its budget allows.
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
  repeat
    local to = math.min(lock.cursor, lock.count)
    local from = math.max(to - CHUNK + 1, 1)
    local list, texts = holders_between(lock, from, to)
    for at = #list, 1, -1 do
      local text = texts[at]
      -- Most holders need no more than their end parsed.
      local ends = tonumber(text and string.match(text, '^%d+ (%d+) %d') or nil)
      if ends and ends > lock.time then
        lock.least = math.min(lock.least, ends)
      else
        local holder = text and parse_holder(lock, list[at], text)
        -- The permits of a missing record are unknown: remove_at frees them with the last holder.
        remove_at(lock, list[at] or '', from + at - 1, holder and holder.permits or 0)
        lock.work = lock.work - CHANGE
      end
    end
    lock.cursor, lock.work = from - 1, lock.work - CHUNK / 2
  until lock.cursor == 0 or lock.work <= HALF
  if lock.cursor == 0 then
    lock.bound = next_expiry_check(lock, lock.least)
  else
    lock.more = true
  end
end

-- Whether the permits are free (I1), and the owner has no former hold that lingers. A request for more than the limit
-- has become since must be the only holder. A latch must be full; a barrier is opened by its last party.
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

-- Those who hold a lock, and the lists of their entries.

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

-- When ended leases are looked for next. Of very many holders one with a short lease would have all of them looked
-- at all the time; so its end is noticed late then, by 20 ms for each thousand of them.
local function next_look(lock, ends)
  return lock.count > AT_MOST and math.max(ends, lock.time + lock.count * PAUSE) or ends
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
    put(lock, lock.key, 'h' .. holder.owner, text_of_one(holder))
  else
    spread(lock)
    lock.used, lock.count = lock.used + holder.permits, lock.count + 1
    holder.index = lock.count
    put(lock, lock.key, 'h' .. holder.owner, text_of_one(holder), 'i' .. lock.count, holder.owner)
  end
  lock.bound = lock.count == 1 and holder.ends or math.min(lock.bound, next_look(lock, holder.ends))
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
      put(lock, lock.key, 'h' .. mover, text_of_one(moved), 'i' .. index, mover)
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
  repeat
    local to = math.min(lock.cursor, lock.count)
    local from = math.max(to - SOME + 1, 1)
    local list, texts = some(lock, from, to)
    for at = #list, 1, -1 do
      local text = texts[at]
      -- Of most holders nothing but the end is needed.
      local ends = tonumber(text and string.match(text, '^%d+ (%d+) %d') or nil)
      if ends and ends > lock.time then
        lock.least = math.min(lock.least, ends)
      else
        local holder = text and read_one(lock, list[at], text)
        -- Of a record that is gone the permits are unknown: they come back when all are.
        take_out(lock, list[at] or '', from + at - 1, holder and holder.permits or 0)
        lock.work = lock.work - CHANGE
      end
    end
    lock.cursor, lock.work = from - 1, lock.work - SOME / 2
  until lock.cursor == 0 or lock.work <= HALF
  if lock.cursor == 0 then
    lock.bound = next_look(lock, lock.least)
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

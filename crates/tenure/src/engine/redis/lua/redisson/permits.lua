-- RSemaphore: a text with the number of free permits. Redisson does not know the holders; Tenure keeps its own, so that a
-- request sent twice counts once, and the permits of a client that crashed come back: "permits entries" by owner in a
-- hash, and the ends of their leases in a sorted set.

local function holders_key(key)
  return own_key('tenure_permits', key)
end

local function leases_key(key)
  return own_key('tenure_leases', key)
end

-- The owners that have counted a latch down, and in the field "left" what was left then. A number beside which it exists is that
-- of a latch, and not of a semaphore.
local function counted_key(key)
  return own_key('tenure_counted', key)
end

local function now_in_ms()
  return math.floor(tonumber(stamp) / 1000)
end

local function give_back(key, permits)
  local free = redis.call('INCRBY', key, permits)
  redis.call(PUBLISH, prefixed('redisson_sc', key), free)
end

local function holder_at(key, owner)
  local text = redis.call('HGET', holders_key(key), owner)
  local permits, entries = string.match(text or '', '^(%d+) (%S+)$')
  return tonumber(permits), entries
end

-- The lease first: a holder without one would keep its permits for ever.
local function note_holder(key, owner, permits, entries, ends)
  if ends then
    local before = tonumber(redis.call('ZSCORE', leases_key(key), owner)) or 0
    redis.call('ZADD', leases_key(key), string.format('%.0f', math.max(before, ends)), owner)
  end
  redis.call('HSET', holders_key(key), owner, permits .. ' ' .. entries)
end

local function forget_holder(key, owner)
  redis.call('HDEL', holders_key(key), owner)
  redis.call('ZREM', leases_key(key), owner)
end

-- Gives back the permits of holders whose leases have ended. Returns the number of free permits; nil if there is no
-- semaphore, and then there are no holders either.
local function settle_permits(key)
  local free, found = number_at(key)
  if found then
    return nil, found
  end
  check_slot(key)
  if not free then
    redis.call('DEL', holders_key(key), leases_key(key), counted_key(key))
    return nil
  end
  local back = 0
  for _, owner in ipairs(redis.call('ZRANGEBYSCORE', leases_key(key), '-inf', now_in_ms(), 'LIMIT', 0, 100)) do
    back = back + (holder_at(key, owner) or 0)
    forget_holder(key, owner)
  end
  if back > 0 then
    give_back(key, back)
  end
  return free + back
end

-- In ms: when the first lease of Tenure's holders ends; 0 if there is none.
local function first_end(key)
  local first = redis.call('ZRANGE', leases_key(key), 0, 0, 'WITHSCORES')
  return first[2] and math.max(first[2] - now_in_ms(), 1) or 0
end

local function acquire_permits(key, request)
  local free, found = settle_permits(key)
  if found then
    return mismatch(key, found)
  elseif free and redis.call('EXISTS', counted_key(key)) == 1 then
    return mismatch(key, 'latch')
  end
  local ends = now_in_ms() + request.lease
  local held, entries = holder_at(key, request.owner)
  if held and held < request.permits then
    return '5 ' .. held
  elseif held then
    entries = has(entries, request.number) and entries or entries .. ',' .. request.number
    note_holder(key, request.owner, held, entries, ends)
    return granted(request, 0, 1)
  end
  if not free then
    free = request.limit
    redis.call('SET', key, free)
    redis.call(PUBLISH, prefixed('redisson_sc', key), free)
  end
  if free < request.permits then
    return busy(request, first_end(key))
  end
  -- Noted first: permits that were taken and not noted would never come back.
  note_holder(key, request.owner, request.permits, request.number, ends)
  or_undo(redis.pcall('DECRBY', key, request.permits), function()
    forget_holder(key, request.owner)
  end)
  return granted(request, 0, 1)
end

local function release_permits(key, owner, number, keep)
  local held, entries = holder_at(key, owner)
  local rest, left = without(entries or '', number)
  if not rest then
    return 'none'
  end
  if keep > 0 then
    if left == 0 and keep < held then
      note_holder(key, owner, keep, entries)
      give_back(key, held - keep)
    end
    return tostring(left + 1)
  end
  if left > 0 then
    note_holder(key, owner, held, rest)
    return tostring(left)
  end
  forget_holder(key, owner)
  give_back(key, held)
  return '0'
end

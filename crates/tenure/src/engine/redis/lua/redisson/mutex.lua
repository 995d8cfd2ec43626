-- RLock and RFencedLock: a hash with the field of the owner and how often it has entered. Tenure adds the field
-- "<owner>:entries" if there is more than the entry 0, and "<owner>:fence" in an RFencedLock; Redisson ignores both.

local function token_key(key)
  return prefixed('redisson_lock_token', key)
end

local function lock_channel(key)
  return prefixed('redisson_lock__channel', key)
end

local function acquire_mutex(key, request)
  local field = request.field
  local found = redis.pcall('HMGET', key, field, 'mode', field .. ':entries', field .. ':fence')
  if found.err then
    return mismatch(key, redis.call('TYPE', key).ok)
  end
  local mine, mode, entries, fence = found[1], found[2], found[3] or '0', found[4] or '0'
  if mode then
    return '4 r' .. ALL
  end
  if mine then
    if not has(entries, request.number) then
      redis.call('HINCRBY', key, field, 1)
      redis.call('HSET', key, field .. ':entries', entries .. ',' .. request.number)
    end
    extend(key, request.lease)
    return granted(request, fence, 1)
  end
  local left = redis.call('PTTL', key)
  if left == -1 then
    wrong_type('a hash that does not expire')
  elseif left >= 0 then
    -- A message is published when it is released; should that be missed, it is free at the end of its lease.
    return busy(request, math.max(left, 1))
  end
  local values = { field, 1 }
  if fenced == '1' then
    -- First: if it is refused, nothing is left.
    check_slot(key)
    redis.call('INCR', token_key(key))
    -- As a text: Lua's numbers are not exact beyond 2^53.
    fence = redis.call('GET', token_key(key))
    values[3], values[4] = field .. ':fence', fence
  end
  if request.number ~= '0' then
    values[#values + 1], values[#values + 2] = field .. ':entries', request.number
  end
  redis.call('HSET', key, unpack(values))
  expire_new(key, request.lease)
  -- Without a fence, tasks of one process may pass it on as often as they wish.
  return granted(request, fence, fenced == '1' and 1 or request.fences)
end

local function free_mutex(key)
  redis.call('DEL', key)
  redis.call(PUBLISH, lock_channel(key), 0)
end

-- Ends an entry. Returns how many are left.
local function release_mutex(key, field, number, entries)
  local rest, left = without(entries or '0', number)
  if not rest then
    return 'none'
  end
  if left == 0 then
    free_mutex(key)
    return '0'
  end
  redis.call('HINCRBY', key, field, -1)
  redis.call('HSET', key, field .. ':entries', rest)
  return tostring(left)
end

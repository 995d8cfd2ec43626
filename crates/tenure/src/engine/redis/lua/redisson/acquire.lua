-- Acquire locks in Redisson's format. Upholds I1, I3, I5: an entry that is sent twice counts once.
-- KEYS[i] the name of the lock, which is the key of its state
-- ARGV[1] "nonce client fenced": the caller's id, and 1 if a mutex is an RFencedLock
-- and for each lock: " lease(8 digits) owner client", a number without meaning here, options
-- Options are "-" for a mutex that is tried once, "+heartbeat claim fences" for one that is waited for, or
-- "number shape permits heartbeat claim fences note"; without a heartbeat the request does not wait.
-- Returns lines: the first argument, and for each lock
-- "1 fence fences lease at" granted, "2 0 free-in-µs at" busy, and a message will follow, "3" busy,
-- "4 shape" in use as another kind, "5 permits" the owner holds fewer, or "-error"; nothing has changed if that is TRYAGAIN,
-- because a cluster moves the slot. A request that waits is then busy.
local client, fenced = string.match(ARGV[1], '^%d+ (%S+) (%d)$')
local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local results, count, at = { ARGV[1] }, #KEYS, 1

-- The plain case: a mutex that is free and entered once. The first other one ends it.
while at <= count and fenced == '0' do
  local held, options = ARGV[at * 3 - 1], ARGV[at * 3 + 1]
  local first = string.byte(options)
  if first ~= 43 and first ~= 45 or redis.call('EXISTS', KEYS[at]) == 1 then
    break
  end
  local lease, owner = tonumber(string.sub(held, 2, 9)), string.sub(held, 11, 42)
  local field = string.sub(owner, 1, 8) .. '-' .. string.sub(owner, 9, 12) .. '-' .. string.sub(owner, 13, 16) .. '-'
    .. string.sub(owner, 17, 20) .. '-' .. string.sub(owner, 21, 32) .. ':0'
  local written = redis.pcall('HSET', KEYS[at], field, 1)
  local kept = type(written) == 'table' and written or redis.pcall('PEXPIRE', KEYS[at], lease)
  if type(kept) == 'table' then
    if kept ~= written then
      -- Without a lease it would be held for ever.
      redis.call('DEL', KEYS[at])
    end
    results[at + 1] = '-' .. string.gsub(kept.err, '[\r\n]', ' ')
  else
    local fences = first == 43 and string.match(options, '%d+$') or 1
    results[at + 1] = '1 0 ' .. fences .. ' ' .. lease .. ' ' .. stamp
  end
  at = at + 1
end
if at > count then
  return table.concat(results, '\n')
end

--@ redisson/common.lua
--@ redisson/mutex.lua
--@ redisson/readers.lua
--@ redisson/permits.lua

-- A latch. Nothing is stored of its waiters. A latch that was not set is open, as for Redisson.
local function latch_channel(key)
  return 'redisson_countdownlatch__channel__{' .. key .. '}'
end

-- Begins a round.
local function set_latch(key, request)
  local counted = counted_key(key)
  redis.call('DEL', counted, holders_key(key), leases_key(key))
  redis.call('HSET', counted, 'left', request.limit)
  expire_new(counted, request.lease)
  redis.call('SET', key, request.limit)
  redis.call(PUBLISH, latch_channel(key), 1)
end

-- An owner that is noted counts no more in this round: so it is noted only if it has counted.
local function count_down(key, request, left)
  local counted = counted_key(key)
  local last = tonumber(redis.call('HGET', counted, 'left'))
  if last and left > last then
    -- Java has begun another round: in one round, the number only becomes smaller.
    redis.call('DEL', counted)
  end
  if redis.call('HSETNX', counted, request.owner, 1) == 0 then
    return
  end
  local function forget()
    redis.call('HDEL', counted, request.owner)
  end
  or_undo(redis.pcall('PEXPIRE', counted, request.lease), forget)
  local rest = or_undo(redis.pcall('DECRBY', key, request.permits), forget)
  if rest > 0 then
    redis.call('HSET', counted, 'left', string.format('%.0f', rest))
  else
    redis.call('DEL', key, counted)
    redis.call(PUBLISH, latch_channel(key), 0)
  end
end

local function acquire_latch(key, request)
  local left, found = number_at(key)
  if found then
    return mismatch(key, found)
  end
  local waits_only = request.permits == 0
  if not left and waits_only and request.waits then
    return granted(request, 0, 1)
  end
  check_slot(key)
  if not left then
    redis.call('DEL', counted_key(key))
  elseif redis.call('EXISTS', holders_key(key)) == 1 then
    return mismatch(key, 'string')
  end
  if not left and waits_only then
    -- To try without waiting sets it.
    set_latch(key, request)
    return '3'
  elseif waits_only and left > 0 then
    return busy(request, 0)
  elseif left and not waits_only then
    count_down(key, request, left)
  end
  return granted(request, 0, 1)
end

local ACQUIRE = { m = acquire_mutex, r = acquire_shared, s = acquire_permits, l = acquire_latch }

-- The parts of a request.
local function read_request(held, options)
  if options == '-' then
    options = '0 m1 1 0 0 1 '
  elseif string.byte(options) == 43 then
    options = '0 m1 1 ' .. string.sub(options, 2) .. ' '
  end
  local number, kind, limit, permits, heartbeat, fences =
    string.match(options, '^(%x+) (%a)(%d+) (%d+) (%d+) %d+ (%d+) ')
  local owner = string.sub(held, 11, 42)
  return {
    owner = owner, field = field_of(owner), number = number, kind = kind, limit = tonumber(limit),
    permits = tonumber(permits), lease = tonumber(string.sub(held, 2, 9)), waits = heartbeat ~= '0',
    fences = tonumber(fences),
  }
end

-- In µs: how soon a request asks again that waits while a cluster moves the slot.
local POLL_IN_TRANSIT = 100 * 1000

for i = at, count do
  local request = read_request(ARGV[i * 3 - 1], ARGV[i * 3 + 1])
  local result = checked(function()
    local acquire = ACQUIRE[request.kind]
    return acquire and acquire(KEYS[i], request) or '-WRONGTYPE Redisson has no such kind of lock'
  end)
  if request.waits and string.find(result, '^%-TRYAGAIN') then
    result = table.concat({ 2, 0, POLL_IN_TRANSIT, stamp }, ' ')
  end
  results[i + 1] = result
end
return table.concat(results, '\n')

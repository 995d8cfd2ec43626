-- The holders of a lock: {owner, permits, entries, fence, µs left, field, note}, as they are shown.

local function number_of_entries(text)
  return math.max(math.floor(tonumber(text) or 1), 1)
end

-- The fields of a hash, or some of them if there are more than so many, and how many there are besides these.
local function fields_of(key, limit)
  local count = redis.call('HLEN', key)
  if count <= limit then
    return redis.call('HGETALL', key), 0
  end
  -- One step finds none where many were removed, and two steps may find the same.
  local some, is_seen, cursor = {}, {}, '0'
  repeat
    local found = redis.call('HSCAN', key, cursor, 'COUNT', MOST_ENTRIES)
    local fields = found[2]
    for i = 1, #fields, 2 do
      if not is_seen[fields[i]] then
        is_seen[fields[i]] = true
        some[#some + 1], some[#some + 2] = fields[i], fields[i + 1]
      end
    end
    cursor = found[1]
  until cursor == '0' or #some >= MOST_ENTRIES
  return some, count - #some / 2
end

-- Of an RLock or an RReadWriteLock. Returns the kind, the holders, and how many there are, not exactly if they are very many;
-- the kind is "" if the hash is none.
local function holders_of_hash(key, most, expected, limit)
  local left, rows, kind = redis.call('PTTL', key), {}, ''
  if left < 0 then
    return kind, rows, 0
  end
  local by_name, fields, holding = { mode = redis.call('HGET', key, 'mode') }, fields_of(key, limit)
  if by_name.mode then
    check_slot(key)
  end
  for i = 1, #fields, 2 do
    by_name[fields[i]] = fields[i + 1]
  end
  local token = not by_name.mode and redis.pcall('GET', token_key(key))
  for i = 1, #fields, 2 do
    local field, writer = fields[i], string.match(fields[i], '^(.*):write$')
    if is_holder(writer or field) and (not writer or by_name.mode) then
      holding, kind = holding + 1, by_name.mode and 'r' .. ALL or 'm1'
      local is_asked_for = expected == '' or expected == owner_of(writer or field)
      if #rows < most and is_asked_for then
        local lease = by_name.mode and not writer and redis.call('PTTL', lease_key(key, field, fields[i + 1])) or left
        local fence = by_name[field .. ':fence'] or type(token) == 'string' and token or '0'
        rows[#rows + 1] = {
          owner_of(writer or field), writer and ALL or 1, number_of_entries(fields[i + 1]),
          string.match(fence, '^%d+$') or '0', math.max(lease, 0) * 1000, writer or field, '',
        }
      end
    end
  end
  return kind, rows, holding
end

-- Of an RSemaphore, or an RCountDownLatch, which look alike: those that Tenure knows. The limit is what they hold and what
-- is free.
local function holders_of_number(key, most, expected)
  local free, rows, limit = settle_permits(key), {}, 0
  limit = free or 0
  local owners = redis.call('ZRANGE', leases_key(key), 0, MOST_ENTRIES - 1, 'WITHSCORES')
  for i = 1, #owners, 2 do
    local held, entries = holder_at(key, owners[i])
    limit = limit + (held or 0)
    if held and #rows < most and (expected == '' or expected == owners[i]) then
      local _, count = string.gsub(entries, '[^,]+', '')
      rows[#rows + 1] = {
        owners[i], held, count, '0', math.max(owners[i + 1] - now_in_ms(), 0) * 1000, field_of(owners[i]), '',
      }
    end
  end
  local kind = redis.call('EXISTS', counted_key(key)) == 1 and 'l' or 's'
  return kind .. string.format('%.0f', math.max(math.min(limit, ALL), 0)), rows, redis.call('ZCARD', leases_key(key))
end

-- At most so many holders; only the one expected, unless that is "". In a hash with more fields than the limit, only some are
-- looked at.
local function holders_of(key, most, expected, limit)
  local found = redis.call('TYPE', key).ok
  if found == 'hash' then
    return holders_of_hash(key, most, expected, limit)
  elseif found == 'string' then
    return holders_of_number(key, most, expected)
  elseif found ~= 'none' then
    wrong_type('a ' .. found)
  end
  return '', {}, 0
end

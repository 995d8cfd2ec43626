-- What the scripts for Redisson's format have in common.

-- In a cluster, the client's id begins with a brace, and messages are published within the lock's slot.
local IS_CLUSTER = string.byte(client) == 123
local PUBLISH = IS_CLUSTER and 'SPUBLISH' or 'PUBLISH'
-- A read-write lock's limit, of which a writer takes all.
local ALL = 1000000000
-- No lock has more fields, and no thread more entries: foreign data must not block the server.
local MOST_FIELDS, MOST_ENTRIES = 20000, 1000

-- A key or channel of Redisson's beside the key of a lock, in its slot. Those of `x` and `{x}` are the same.
local function prefixed(prefix, key)
  return prefix .. ':' .. (string.find(key, '{', 1, true) and key or '{' .. key .. '}')
end

-- A key of Tenure's own beside that of a lock, in its slot. Those of `x` and `{x}` differ.
local function own_key(prefix, key)
  return prefix .. ':' .. (string.find(key, '{', 1, true) and ':' .. key or '{' .. key .. '}')
end

-- To be called before a key beside the lock's own is read or written. While a cluster moves the slot, that key may be at
-- the other node: it looks absent here, or the server refuses it midway. Both nodes then refuse two keys that never exist,
-- and the operation is refused before it has changed anything. The lock's own key is always at the node that was asked.
local function check_slot(key)
  if not IS_CLUSTER then
    return
  end
  local found = redis.pcall('EXISTS', own_key('tenure_none', key), own_key('tenure_never', key))
  if type(found) == 'table' then
    local is_in_transit = string.find(found.err, 'non local key', 1, true)
    error(is_in_transit and { err = 'TRYAGAIN the cluster moves the slot of this lock' } or found)
  end
end

-- The field of one of Tenure's owners: as Redisson's, which are a client's UUID and the number of a thread. No thread
-- has the number 0.
local function field_of(owner)
  return string.sub(owner, 1, 8) .. '-' .. string.sub(owner, 9, 12) .. '-' .. string.sub(owner, 13, 16) .. '-'
    .. string.sub(owner, 17, 20) .. '-' .. string.sub(owner, 21, 32) .. ':0'
end

-- The owner with a field: one of Tenure's, or for a thread of Redisson's a number that is derived from it.
local function owner_of(field)
  if string.sub(field, -2) == ':0' and #field == 38 then
    return (string.gsub(string.sub(field, 1, 36), '-', ''))
  end
  return string.sub(redis.sha1hex(field), 1, 32)
end

-- Whether a field is a holder's: the id of a client or of a transaction, and the number of a thread, which may be negative.
local function is_holder(field)
  return string.find(field, '^%x[%x%-]+:%-?%d+$')
end

-- Runs the operation on one lock. Its error does not affect the others of the call.
local function checked(operation)
  local is_done, result = pcall(operation)
  if is_done then
    return result
  end
  local text = type(result) == 'table' and result.err or tostring(result)
  return '-' .. string.gsub(text, '[\r\n]', ' ')
end

local function wrong_type(what)
  error({ err = 'WRONGTYPE the key of this name holds ' .. what .. ', and no lock of Redisson' })
end

-- The number in a key: permits that are free, or what is left to count down. Nil if there is none.
local function number_at(key)
  local text = redis.pcall('GET', key)
  if type(text) == 'table' then
    return nil, redis.call('TYPE', key).ok
  end
  local number = text and tonumber(text)
  if text and not number then
    wrong_type('a text')
  end
  return number
end

local function granted(request, fence, fences)
  return table.concat({ 1, fence, fences, request.lease, stamp }, ' ')
end

-- The answer to a request that cannot be granted; the lease of the holders ends in so many ms.
local function busy(request, free_in)
  return request.waits and '2 0 ' .. string.format('%.0f', math.max(free_in, 0) * 1000) .. ' ' .. stamp or '3'
end

-- The result of a command that redis.pcall has run. If the server refused it, for lack of a right, what was written before is
-- undone.
local function or_undo(result, undo)
  if type(result) == 'table' and result.err then
    undo()
    error(result)
  end
  return result
end

-- Gives a new key its lease. Without one it would stay for ever.
local function expire_new(key, lease)
  or_undo(redis.pcall('PEXPIRE', key, lease), function()
    redis.call('DEL', key)
  end)
end

-- Extends the lease of a key, which never becomes shorter.
local function extend(key, lease)
  redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), lease))
end

-- Entries are numbers with commas between them. Whether an entry is in a list.
local function has(list, number)
  return string.find(',' .. list .. ',', ',' .. number .. ',', 1, true)
end

-- A list without an entry, and how many are left; nil if it is not in the list.
local function without(list, number)
  if not has(list, number) then
    return nil
  end
  local rest = {}
  for entry in string.gmatch(list, '[^,]+') do
    if entry ~= number then
      rest[#rest + 1] = entry
    end
  end
  return table.concat(rest, ','), #rest
end

-- What a name is in use as, if its key is not what a request expects.
local function mismatch(key, found)
  if found == 'hash' then
    return redis.call('HEXISTS', key, 'mode') == 1 and '4 r' .. ALL or '4 m1'
  elseif found == 'string' or found == 'latch' then
    local limit = math.max(math.min(number_at(key) or 0, ALL), 1)
    return (found == 'latch' and '4 l' or '4 s') .. string.format('%.0f', limit)
  end
  wrong_type('a ' .. tostring(found))
end

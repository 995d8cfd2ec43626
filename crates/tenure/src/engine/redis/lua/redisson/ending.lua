-- Ends an entry of an owner, whatever kind of lock it is of. Returns how many are left, or "none".
local function end_entry(key, owner, number, keep)
  local field = field_of(owner)
  local found = redis.pcall('HMGET', key, field, field .. ':write', 'mode', field .. ':entries')
  if found.err then
    local kind = redis.call('TYPE', key).ok
    return kind == 'string' and settle_permits(key) and release_permits(key, owner, number, keep) or 'none'
  end
  local mine, writes, mode, entries = found[1], found[2], found[3], found[4]
  if not mine and not writes then
    return 'none'
  elseif mode then
    return release_shared(key, owner, field, number, writes and true or false, keep)
  end
  return release_mutex(key, field, number, entries)
end

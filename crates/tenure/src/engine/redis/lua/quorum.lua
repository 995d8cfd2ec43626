-- Before an operation without a plain case on a node of a quorum: as quorum_read.lua.
-- ARGV[#ARGV] marker
do
  local marker = redis.pcall('GET', 'tenure:quorum')
  if marker ~= ARGV[#ARGV] then
    return type(marker) == 'table' and marker or { err = 'QUARANTINED this server does not have the marker of its '
      .. 'quorum: it is new, or has lost its data. Clients admit it again after the quarantine' }
  end
end


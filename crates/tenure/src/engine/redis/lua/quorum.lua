-- Before an operation on a node of a quorum: refuses all of it, with nothing changed, unless the server has the marker
-- of its quorum. A server that lost its data has lost the marker with it, and must not vote (I1, I4).
-- ARGV[1] "nonce marker client retention"
do
  local marker = redis.pcall('GET', 'tenure:quorum')
  if marker ~= string.match(ARGV[1], '^%S+ (%S+)') then
    return type(marker) == 'table' and marker or { err = 'QUARANTINED this server does not have the marker of its '
      .. 'quorum: it is new, or has lost its data. Clients admit it again after the quarantine' }
  end
end


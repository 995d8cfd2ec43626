-- Before an acquire on a node of a quorum: as quorum.lua, and refuses while the clock of this server is known to have been
-- set. Leases may have ended early here, and clients that have not seen the clock before would not know (I1).
-- ARGV[1] "nonce marker client retention"
do
  local found = redis.pcall('MGET', 'tenure:quorum', 'tenure:quorum:clock')
  if found[1] ~= string.match(ARGV[1], '^%S+ (%S+)') then
    return found.err and found or { err = 'QUARANTINED this server does not have the marker of its '
      .. 'quorum: it is new, or has lost its data. Clients admit it again after the quarantine' }
  elseif found[2] then
    return { err = 'CLOCKSET the clock of this server was set: it grants no lock until every lease that may have '
      .. 'ended early would have ended' }
  end
end

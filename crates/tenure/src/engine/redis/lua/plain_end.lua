-- After the loop of the plain case: done, if it has handled every lock.
if not rest then
  return table.concat(results, '\n')
end
results = results or { first_line }
